#include "kvstore/ps/worker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
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
      epoch_(group.membership().epoch) {
  group_.OnFailure([this](const absl::Status& why) { FailLocal(why); });
}

DistWorker::~DistWorker() {
  Close();
  group_.OnFailure(nullptr);
  transport_.reset();  // before the memory that it reads and writes
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
  packing_ = config_.compression.packing;
  return absl::OkStatus();
}

absl::Status DistWorker::SetOptimizer(const OptimizerConfig& config) {
  if (!planner_.has_value()) {
    config_.optimizer = config;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(failure());
  RETURN_IF_ERROR(CheckOptimizerChange(config_.optimizer, config));
  for (size_t key = 0; key < tensors_.size(); ++key) {
    MutexLock lock(&mutex_);
    if (tensors_[key].active == nullptr) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "SetOptimizer within a round of tensor ", tensors_[key].spec().name));
  }
  config_.optimizer = config;
  if (config.update_on == UpdateOn::kWorker) return absl::OkStatus();
  // No worker has a round under way from the first meeting to the second, so
  // that all chunks have the rates from the same one on.
  const auto change = [&]() -> absl::Status {
    RETURN_IF_ERROR(
        AgreeOnFacts(group_, "rates", {{"optimizer", OptimizerFact(config)}}));
    if (rank_ == 0) {
      RETURN_IF_ERROR(Ask({.type = FrameType::kRates},
                          OptimizerFields(config).dump(), kAllServers)
                          .status());
    }
    return group_.Gather("rates set", "").status();
  };
  const absl::Status status = change();
  if (!status.ok()) FailJob(status);  // the others wait for us
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
          .io_cpu_s = io_clock_.has_value() ? SecondsOf(*io_clock_) : io_cpu_s_,
          .codec_s = codec_time_.seconds(),
          .network_s = leaving_.busy().seconds(),
          .answer_s = answer_times_.means()};
}

std::vector<TensorReport> DistWorker::Report() const {
  std::vector<TensorReport> reports;
  for (size_t key = 0; key < tensors_.size(); ++key) {
    reports.push_back(tensors_[key].codec->Report(tensors_[key].rounds));
  }
  return reports;
}

absl::Status DistWorker::SetCodec(Key key, int codec) {
  if (key >= tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", key, " of a store with ", tensors_.size(), " tensors"));
  }
  return tensors_[key].codec->SetCodec(codec);
}

// Where no codec has a choice there is nothing to decide.
PackingMode DistWorker::packing() const {
  const PackingMode mode = packing_;
  return mode == PackingMode::kAuto && !has_open_packing_ ? PackingMode::kPlain
                                                          : mode;
}

absl::Status DistWorker::SetPacking(PackingMode mode) {
  if (!planner_.has_value() || packing() != PackingMode::kAuto ||
      mode == PackingMode::kAuto) {
    return absl::FailedPreconditionError(absl::StrCat(
        "SetPacking to ", ToString(mode), " of a store with ",
        planner_.has_value() ? ToString(packing()) : "no tensors yet"));
  }
  for (size_t key = 0; key < tensors_.size(); ++key) {
    MutexLock lock(&mutex_);
    if (tensors_[key].rounds > 0 || tensors_[key].active != nullptr) {
      return absl::FailedPreconditionError("SetPacking after the first push");
    }
  }
  packing_ = mode;
  for (size_t key = 0; key < tensors_.size(); ++key) {
    tensors_[key].codec->DecidePacking(static_cast<uint8_t>(mode));
  }
  return tensors_.Place(0);
}

std::string DistWorker::transport_details() const { return transport_details_; }

void DistWorker::FailJob(const absl::Status& why) {
  FailLocal(why);
  group_.Fail(why);
}

void DistWorker::FailLocal(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = why;
  has_failed_ = true;
  if (is_open_) transport_->Wake();
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
  FailJob(WithExitCode(
      ExitCode::kTimeout,
      absl::DeadlineExceededError(absl::StrCat(
          DescribeOp(tensor, op), ", nor when it was cancelled"))));
  while (!Ticket(op.ticket).WaitUntil(Clock::now() + kCancelGrace)) {
    LogWarning("still in use: ", DescribeOp(tensor, op));
  }
}

absl::Status DistWorker::failure() {
  MutexLock lock(&mutex_);
  return failure_;
}

void DistWorker::Close() {
  if (is_stopping_.exchange(true)) return;
  group_.Leave();
  FailLocal(absl::FailedPreconditionError("the store is closed"));
  if (io_thread_.joinable()) io_thread_.join();
  pool_.reset();
}

}  // namespace telegrad
