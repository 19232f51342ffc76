#include "kvstore/ps/worker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/engine/checks.h"
#include "kvstore/optimizer.h"
#include "kvstore/ps/json_fields.h"

namespace telegrad {

DistWorker::DistWorker(const StoreOptions& options, const StoreTraits& traits,
                       WorkerGroup& group)
    : options_(options),
      traits_(traits),
      group_(group),
      rank_(group.rank()),
      num_workers_(group.num_workers()),
      failure_(group, [this] { links_.Wake(); }),
      links_(group, failure_, *this),
      questions_(links_, failure_, group.options().operation_timeout),
      link_(group, links_, failure_),
      codecs_(tensors_) {
  group_.OnFailure([this](const absl::Status& why) { failure_.Set(why); });
}

DistWorker::~DistWorker() {
  Close();
  group_.OnFailure(nullptr);
}

absl::Status DistWorker::SetCompression(const CompressionConfig& config) {
  if (planner_.has_value()) {
    return absl::FailedPreconditionError("SetCompression after Init");
  }
  config_.compression = config;
  const TransportOptions& transport = group_.data_path().transport;
  if (const double rate = transport.link_bytes_per_s; rate > 0) {
    config_.compression.packing = ChoosePacking(config.packing, rate);
  }
  codecs_.Configure(config_.compression.packing);
  return absl::OkStatus();
}

absl::Status DistWorker::SetOptimizer(const OptimizerConfig& config) {
  if (!planner_.has_value()) {
    config_.optimizer = config;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(failure_.status());
  RETURN_IF_ERROR(CheckOptimizerChange(config_.optimizer, config));
  RETURN_IF_ERROR(tensors_.CheckIdle("SetOptimizer"));
  config_.optimizer = config;
  if (config.update_on == UpdateOn::kWorker) return absl::OkStatus();
  // No worker has a round under way from the first meeting to the second, so
  // that all chunks have the rates from the same one on.
  const auto change = [&]() -> absl::Status {
    RETURN_IF_ERROR(
        AgreeOnFacts(group_, "rates", {{"optimizer", OptimizerFact(config)}}));
    if (rank_ == 0) {
      RETURN_IF_ERROR(questions_
                          .Ask({.type = FrameType::kRates},
                               OptimizerFields(config).dump(),
                               ServerQuestions::kAllServers)
                          .status());
    }
    return group_.Gather("rates set", "").status();
  };
  const absl::Status status = change();
  if (!status.ok()) failure_.FailJob(status);  // the others wait for us
  return status;
}

Ticket DistWorker::PushPull(Key key, TensorViews grads, TensorViews outs,
                            int priority) {
  return Start(OpKind::kPushPull, key, grads, outs, priority);
}

Ticket DistWorker::Push(Key key, TensorViews grads, int priority) {
  return Start(OpKind::kPush, key, grads, {}, priority);
}

Ticket DistWorker::Pull(Key key, TensorViews outs, int priority) {
  return Start(OpKind::kPull, key, {}, outs, priority);
}

Ticket DistWorker::Broadcast(Key key, int root, TensorViews values,
                             int priority) {
  const absl::Status status = CheckRoot(root, num_workers_);
  if (!status.ok()) return FinishedTicket(status);
  return root == rank_ ? Start(OpKind::kGiveValue, key, values, {}, priority)
                       : Start(OpKind::kTakeValue, key, {}, values, priority);
}

StoreStats DistWorker::stats() const {
  MutexLock lock(&mutex_);
  int64_t to_device = 0;
  int64_t from_device = 0;
  for (const auto& device : devices_) {
    to_device += device->lane().up_bytes();
    from_device += device->lane().down_bytes();
  }
  return {.push_raw_bytes = push_raw_bytes_,
          .push_wire_bytes = push_wire_bytes_,
          .pull_raw_bytes = pull_raw_bytes_,
          .pull_wire_bytes = pull_wire_bytes_,
          .num_nonfinite = num_nonfinite_,
          .num_frames = num_frames_,
          .to_device_bytes = to_device,
          .from_device_bytes = from_device,
          .max_staleness = staleness_.most(),
          .mean_staleness = staleness_.mean(),
          .io_cpu_s = links_.io_cpu_s(),
          .codec_s = codec_time_.seconds(),
          .network_s = links_.busy().seconds(),
          .answer_s = answer_times_.means()};
}

// Where the memory is still in use by then, the connections are cut. Of a store
// that fails meanwhile no use ends, but the ticket, when nobody uses it.
void DistWorker::Release(WorkerTensor& tensor, WorkerOp& op) {
  constexpr auto kTick = std::chrono::milliseconds(1);
  const TimePoint deadline = Clock::now() + kCancelGrace;
  while (!op.memory.Release(Clock::now()) && Clock::now() < deadline) {
    if (Ticket(op.ticket).WaitUntil(Clock::now() + kTick)) return;
  }
  if (op.memory.Release(Clock::now())) return;
  failure_.FailJob(WithExitCode(
      ExitCode::kTimeout,
      absl::DeadlineExceededError(absl::StrCat(
          DescribeOp(tensor, op), ", nor when it was cancelled"))));
  while (!Ticket(op.ticket).WaitUntil(Clock::now() + kCancelGrace)) {
    LogWarning("still in use: ", DescribeOp(tensor, op));
  }
}

absl::StatusOr<Bytes> DistWorker::OnHeader(int server,
                                           const FrameHeader& header) {
  switch (header.type) {
    case FrameType::kEcho:
      return link_.OnHeader(server, header);
    case FrameType::kDeclared:
    case FrameType::kState:
      return questions_.OnHeader(server, header);
    default:
      break;
  }
  ASSIGN_OR_RETURN(WorkerChunk* const chunk, FindChunk(server, header));
  ASSIGN_OR_RETURN(const Bytes target, ReplyTarget(*chunk, header));
  chunk->phase = ChunkPhase::kReceiving;  // a second answer is refused
  if (header.payload_bytes > 0) links_.busy().Begin();
  return target;
}

void DistWorker::OnFrame(int server, const FrameHeader& header,
                         ConstBytes header_bytes, Bytes payload) {
  switch (header.type) {
    case FrameType::kEcho:
      return link_.OnEcho(server);
    case FrameType::kDeclared:
      return;
    case FrameType::kState:
      return questions_.OnState(header_bytes, payload);
    default:
      return OnAnswer(header, header_bytes, payload);
  }
}

// Nobody may touch a caller's memory once its ticket has ended: the transport
// has let go, then the pool does.
void DistWorker::OnEnd() {
  {
    MutexLock lock(&mutex_);
    // Jobs compute and block on nothing.
    while (num_jobs_ > 0) {
      jobs_changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
    }
  }
  const absl::Status why = failure_.status();
  for (size_t key = 0; key < tensors_.size(); ++key) {
    if (const auto op = tensors_[key].turns.active()) op->ticket->Finish(why);
  }
  questions_.End(why);
  link_.End(why);
}

void DistWorker::Close() {
  if (is_stopping_.exchange(true)) return;
  group_.Leave();
  failure_.Set(absl::FailedPreconditionError("the store is closed"));
  links_.Join();
  pool_.reset();
}

}  // namespace telegrad
