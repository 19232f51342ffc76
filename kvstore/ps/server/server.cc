#include "kvstore/ps/server/server.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "base/short_slices.h"
#include "base/status_macros.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/metrics.h"

namespace telegrad {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kHandshakeDeadline = std::chrono::seconds(5);
// A worker's connection that ends may be its orderly end, of which the
// scheduler tells us.
constexpr Duration kSuspicionDelay = std::chrono::milliseconds(300);

FatalEvent EventOf(const absl::Status& status) {
  FatalEvent event{.code = ExitCodeOf(status), .message = {}, .dead = {}};
  event.message = std::string(status.message());
  return event;
}

// A worker has left in order, and a round of others waits for it. `ranks`: of
// those that push; `names`: their ranks in messages, if others.
std::optional<FatalEvent> FindMissed(const ServedTensors& tensors, Job& job,
                                     std::span<const int> ranks,
                                     const std::vector<int>& names) {
  const std::vector<int> left = job.Left();
  for (size_t place = 0; !left.empty() && place < ranks.size(); ++place) {
    const int rank = ranks[place];
    if (std::ranges::find(left, rank) == left.end()) continue;
    const std::string what = tensors.WaitsFor(static_cast<int>(place));
    if (what.empty()) continue;
    const auto index = static_cast<size_t>(rank);
    const Member& member = job.membership().workers[index];
    const std::string name =
        ToString(NodeId{Role::kWorker, names.empty() ? rank : names[index]});
    FatalEvent event{.code = ExitCode::kPeerDied};
    event.message =
        absl::StrCat(name, " has left the job ", what, " waits for it");
    event.dead = {absl::StrCat(name, "@", member.host, ":", member.pid)};
    return event;
  }
  return std::nullopt;
}

}  // namespace

std::function<absl::Status(const JobOptions&)> HostPart(int num_threads) {
  return [num_threads](const JobOptions& job) {
    return DistServer({.job = job, .num_threads = num_threads}).Run();
  };
}

absl::Status RunServer(const ServerOptions& options) {
  ServerOptions own = options;
  KeptWeights kept;
  for (;;) {
    const absl::Status status = DistServer(own, &kept).Run();
    const std::optional<int> seat = SeatOf(status);
    if (!seat.has_value()) return status;
    own.job.wanted_rank = *seat;
    ReturnFreeMemory();
  }
}

DistServer::DistServer(const ServerOptions& options, KeptWeights* kept)
    : options_(options), kept_(kept), timeline_(options.job.server_trace) {}

DistServer::~DistServer() {
  pool_.reset();       // jobs use all that follows
  transport_.reset();  // before the memory that it reads and writes
}

absl::Status DistServer::Run() {
  RETURN_IF_ERROR(Start());
  const bool is_of_host = !options_.job.ranks_in_job.empty();
  if (!is_of_host) {
    registration_ = AddTo(options_.job.metrics,
                          [this](MetricsPage& page) { Collect(page); });
  }
  const absl::Status status = Serve();
  registration_ = {};
  pool_.reset();
  if (kept_ != nullptr && SeatOf(status).has_value()) {
    *kept_ = tensors_->TakeWeights();
  }
  if (!status.ok()) {
    control_->Fail(EventOf(status));
    // Our connections end behind the verdict: before it workers would suspect
    // this server.
    control_->WaitForEnd(Clock::now() + options_.job.timing.dead).IgnoreError();
    return status;
  }
  control_->Leave();
  return timeline_.Write(rank_, tensors_->names());
}

absl::Status DistServer::Start() {
  RETURN_IF_ERROR(CheckPath(options_.job.path.transport));
  ASSIGN_OR_RETURN(std::unique_ptr<Job> control,
                   Job::Join(JoinRequestOf(options_.job, Role::kServer)));
  const TimePoint deadline = Clock::now() + options_.job.timing.join;
  PathOptions options = options_.job.path;
  options.gdr = std::nullopt;  // sums are in host memory
  absl::StatusOr<DataPath> path =
      AgreeOnPath(*control, options, options_.job.secret, deadline);
  Job& job = *control;
  absl::Status status = path.status();
  if (status.ok()) {
    const auto address = Open(std::move(control), *std::move(path));
    status = address.ok() ? PostAddress(job, *address) : address.status();
  }
  if (!status.ok()) job.Fail(EventOf(status));  // workers wait for us
  return status;
}

absl::StatusOr<std::string> DistServer::Open(std::unique_ptr<Job> control,
                                             DataPath path) {
  control_ = std::move(control);
  path_ = std::move(path);
  const Membership& membership = control_->membership();
  rank_ = membership.self.rank;
  epoch_ = membership.epoch;
  ASSIGN_OR_RETURN(ledger_, Ledger::Open(options_.job.ledger, membership));
  const size_t num_all = membership.workers.size();
  ranks_ = RanksByPlace(path_.plan, num_all);
  num_workers_ = static_cast<int>(RanksThatPush(path_.plan, num_all).size());
  worker_sessions_.assign(ranks_.size(), nullptr);
  metrics_.Resize(ranks_);
  if (options_.job.flight != nullptr) {
    recorder_ = options_.job.flight->Add(
        {.self = membership.self,
         .type = "server",
         .ranks = ranks_,
         .num_pushers = static_cast<size_t>(num_workers_)});
    leaving_.Record(recorder_);
  }
  tensors_.emplace(rank_, static_cast<int>(membership.servers.size()),
                   num_workers_, options_.max_model_bytes,
                   static_cast<int>(ranks_.size()) - num_workers_,
                   kept_ == nullptr ? KeptWeights() : std::move(*kept_));
  pool_ = std::make_unique<ThreadPool>(options_.num_threads);
  // For Serve, unless it sums by itself.
  path_.transport.sends_wait = options_.num_threads > 0;
  ASSIGN_OR_RETURN(transport_, MakeTransport(path_.transport, this));
  return transport_->Listen();
}

absl::StatusOr<Bytes> DistServer::BeginDeclaration(Session& session,
                                                   const FrameHeader& header) {
  if (session.worker != 0 || session.declaration.size() > 0 ||
      header.payload_bytes == 0) {
    return absl::InvalidArgumentError("new tensors were not expected");
  }
  ASSIGN_OR_RETURN(session.declaration, Buffer::Create(header.payload_bytes));
  return session.declaration.view();
}

absl::Status DistServer::HandleDeclaration(Session& session,
                                           const FrameHeader& header,
                                           ConstBytes payload) {
  const size_t first = tensors_->names().size();
  RETURN_IF_ERROR(tensors_->Apply(header, payload));
  timeline_.KeepLast(rank_, tensors_->names());
  for (size_t key = first; recorder_ && key < tensors_->names().size(); ++key) {
    recorder_->SetName(static_cast<uint32_t>(key), tensors_->names()[key]);
  }
  session.declaration = Buffer();
  Tell(session, FrameType::kDeclared, {});
  return absl::OkStatus();
}

absl::Status DistServer::AnswerState(Session& session,
                                     const FrameHeader& header) {
  if (session.worker != 0) {
    return absl::InvalidArgumentError("a state was not to be asked for");
  }
  ASSIGN_OR_RETURN(std::string text, tensors_->DescribeState(header));
  if (text.size() > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a state of ", text.size(), " bytes for a worker, at most ",
        kMaxPayloadBytes, ": take smaller chunks"));
  }
  Tell(session, FrameType::kState, std::move(text));
  return absl::OkStatus();
}

void DistServer::Tell(Session& session, FrameType type, std::string text) {
  const auto kept = std::make_shared<std::string>(std::move(text));
  const ConstBytes payload(kept->data(), kept->size());
  const bool is_handshake =
      type == FrameType::kChallenge || type == FrameType::kReady;
  const FrameHeader header{
      .type = type,
      .epoch = epoch_,
      .payload_bytes = static_cast<uint32_t>(payload.size),
      .source = static_cast<uint16_t>(rank_),
      .destination =
          is_handshake ? uint16_t{0} : static_cast<uint16_t>(session.worker)};
  session.sender->Enqueue({.header = SerializeFrame(header, payload),
                           .payload = payload,
                           .keep_alive = kept,
                           .priority = INT32_MAX});
}

void DistServer::Collect(MetricsPage& page) const {
  page.SetScope({{"role", "server"}, {"rank", absl::StrCat(rank_)}});
  CollectJob(control_->membership(), options_.job.job_id,
             control_->Left().size(), page);
  CollectPlan(path_.plan, page);
  metrics_.Collect(page);
}

absl::Status DistServer::Turn(TimePoint deadline) {
  {
    MutexLock lock(&mutex_);
    turn_.swap(posted_);
  }
  for (const auto& job : turn_) job();
  turn_.clear();
  RETURN_IF_ERROR(failure_);
  transport_->Progress(deadline);
  return absl::OkStatus();
}

absl::Status DistServer::Serve() {
  const ShortSlices slices;
  TimePoint next_check = Clock::now() + kTick;
  for (;;) {
    RETURN_IF_ERROR(Turn(next_check));
    if (Clock::now() < next_check) continue;
    next_check = Clock::now() + kTick;
    Sweep();
    const absl::Status end = control_->WaitForEnd(Clock::now());
    if (end.ok()) return absl::OkStatus();
    if (!absl::IsDeadlineExceeded(end)) return end;
  }
}

void DistServer::Post(std::function<void()> job) {
  {
    MutexLock lock(&mutex_);
    posted_.push_back(std::move(job));
    if (posted_.size() > 1) return;  // the first one wakes
  }
  transport_->Wake();
}

void DistServer::Sweep() {
  const TimePoint now = Clock::now();
  strangers_.CutLate(kHandshakeDeadline,
                     [this](EndpointId id) { transport_->Close(id); });
  std::vector<LostWorker> later;
  for (LostWorker& lost : lost_) {
    if (now - lost.at < kSuspicionDelay) {
      later.push_back(std::move(lost));
    } else {
      control_->SuspectPeer(lost.who, lost.why);
    }
  }
  lost_ = std::move(later);
  const auto pushers =
      std::span<const int>(ranks_).first(static_cast<size_t>(num_workers_));
  const auto missed =
      FindMissed(*tensors_, *control_, pushers, options_.job.ranks_in_job);
  if (!missed.has_value() || !failure_.ok()) return;
  control_->Fail(*missed);
  failure_ =
      WithExitCode(missed->code, absl::UnavailableError(missed->message));
}

void DistServer::Fail(const absl::Status& why) {
  metrics_.CountRefusedFrame();
  if (!failure_.ok()) return;
  failure_ = WithExitCode(
      ExitCodeOfFrame(why),
      absl::Status(why.code(),
                   absl::StrCat("server/", rank_, ": ", why.message())));
}

}  // namespace telegrad
