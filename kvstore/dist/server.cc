#include "kvstore/dist/server.h"

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/short_slices.h"
#include "base/status_macros.h"
#include "kvstore/dist/members.h"

namespace telegrad {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kHandshakeDeadline = std::chrono::seconds(5);
// A worker's connection that ends may be its orderly end, of which the
// scheduler tells us.
constexpr Duration kSuspicionDelay = std::chrono::milliseconds(300);

}  // namespace

absl::Status RunServer(const ServerOptions& options) {
  return DistServer(options).Run();
}

DistServer::DistServer(const ServerOptions& options) : options_(options) {}

DistServer::~DistServer() {
  pool_.reset();       // jobs use all that follows
  transport_.reset();  // before the memory that it reads and writes
}

absl::Status DistServer::Run() {
  RETURN_IF_ERROR(Start());
  absl::Status status = MakeChunks();
  if (status.ok()) {
    pool_ = std::make_unique<ThreadPool>(options_.dist.num_threads);
    status = Serve();
    pool_.reset();
  }
  if (!status.ok()) {
    FatalEvent event{.code = ExitCodeOf(status), .message = {}, .dead = {}};
    event.message = std::string(status.message());
    control_->Fail(event);
    return status;
  }
  control_->Leave();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TransportContext>> DistServer::ListenOver(
    TransportOptions transport, std::string* address) {
  // For Serve, unless it sums by itself.
  transport.sends_wait = options_.dist.num_threads > 0;
  ASSIGN_OR_RETURN(std::unique_ptr<TransportContext> context,
                   MakeTransport(transport, this));
  ASSIGN_OR_RETURN(*address, context->Listen());
  return context;
}

absl::StatusOr<DistServer::Listener> DistServer::ListenOver(
    const TransportOptions& transport, bool is_open) {
  Listener listener;
  TransportOptions one = transport;
  if (is_open) one.connections = 1;
  ASSIGN_OR_RETURN(listener.context, ListenOver(one, &listener.address));
  if (!is_open) return listener;
  TransportOptions several = transport;
  several.connections = kMaxConnections;  // of which a worker uses what it says
  ASSIGN_OR_RETURN(listener.striped,
                   ListenOver(several, &listener.striped_address));
  return listener;
}

absl::StatusOr<std::vector<DistServer::Listener>> DistServer::ListenOverAll(
    OwnTransports& own) {
  std::vector<Listener> listeners;
  while (listeners.size() < own.transports.size()) {
    const size_t i = listeners.size();
    absl::StatusOr<Listener> made =
        ListenOver(own.transports[i], own.offers.is_open);
    if (!made.ok() && own.transports.size() > 1) {
      Withdraw(i, made.status(), own);
      continue;
    }
    RETURN_IF_ERROR(made.status());
    own.offers.addresses.push_back(made->address);
    if (own.offers.is_open) {
      own.offers.striped_addresses.push_back(made->striped_address);
    }
    listeners.push_back(*std::move(made));
  }
  return listeners;
}

absl::Status DistServer::Start() {
  // Workers need an address to start with: it listens over all that the job may
  // settle on, and keeps that one.
  OwnTransports own = TransportsOf(options_.dist);
  ASSIGN_OR_RETURN(std::vector<Listener> listeners, ListenOverAll(own));
  JoinRequest request{
      .scheduler_address = options_.dist.scheduler_address,
      .role = Role::kServer,
      .wanted_rank = options_.dist.wanted_rank,
      .data_address = "",
      .offers = own.offers,
      .facts = {},
      .shared = options_.about,
      .job_id = options_.dist.job_id,
      .secret = options_.dist.secret,
      .timing = options_.dist.timing,
      .on_fatal = options_.dist.on_fatal,
  };
  ASSIGN_OR_RETURN(control_, ControlClient::Join(request));
  const Membership& membership = control_->membership();
  Listener& kept = listeners[SettledIndex(membership, own)];
  const bool is_striped = membership.connections > 1 && kept.striped != nullptr;
  transport_ = std::move(is_striped ? kept.striped : kept.context);
  rank_ = membership.self.rank;
  epoch_ = membership.epoch;
  num_workers_ = static_cast<int>(membership.workers.size());
  worker_sessions_.assign(membership.workers.size(), nullptr);
  return absl::OkStatus();
}

absl::Status DistServer::MakeChunks() {
  const Membership& membership = control_->membership();
  ASSIGN_OR_RETURN(config_,
                   ParseJobConfig(membership.shared, options_.max_model_bytes));
  RETURN_IF_ERROR(CheckNetwork());
  ASSIGN_OR_RETURN(const std::vector<TensorLayout> plan,
                   MakeShardPlan(config_.tensors,
                                 static_cast<int>(membership.servers.size()),
                                 config_.chunk_elems, config_.compression));
  chunks_.resize(plan.size());
  for (size_t key = 0; key < plan.size(); ++key) {
    for (const Chunk& chunk : plan[key].chunks) {
      std::unique_ptr<ChunkRounds> rounds;
      if (chunk.server == rank_) {
        ASSIGN_OR_RETURN(Stages stages,
                         Stages::Make(plan[key], chunk.num_elems,
                                      config_.compression, config_.optimizer));
        rounds = std::make_unique<ChunkRounds>(
            chunk, std::move(stages), config_, num_workers_, &buffers_);
      }
      chunks_[key].push_back(std::move(rounds));
    }
  }
  return absl::OkStatus();
}

// It has listened before it knew the job.
absl::Status DistServer::CheckNetwork() const {
  const bool own = options_.dist.transport.resend;
  if (own != config_.resends) {
    const auto text = [](bool resends) { return resends ? "on" : "off"; };
    return WithExitCode(
        ExitCode::kMismatch,
        absl::InvalidArgumentError(absl::StrCat(
            "resend: workers have ", text(config_.resends), ", server/", rank_,
            " has ", text(own), "; give all the same --resend")));
  }
  return absl::OkStatus();
}

absl::Status DistServer::Serve() {
  const ShortSlices slices;
  std::vector<std::function<void()>> jobs;
  TimePoint next_check = Clock::now() + kTick;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      jobs.swap(posted_);
    }
    for (const auto& job : jobs) job();
    jobs.clear();
    RETURN_IF_ERROR(failure_);
    transport_->Progress(next_check);
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
  for (auto& [endpoint, session] : sessions_) {
    if (session.worker < 0 && now - session.since > kHandshakeDeadline) {
      transport_->Close(endpoint);
    }
  }
  std::vector<LostWorker> later;
  for (LostWorker& lost : lost_) {
    if (now - lost.at < kSuspicionDelay) {
      later.push_back(std::move(lost));
    } else {
      control_->SuspectPeer({Role::kWorker, lost.rank}, lost.why);
    }
  }
  lost_ = std::move(later);
}

void DistServer::Fail(const absl::Status& why) {
  if (!failure_.ok()) return;
  const ExitCode code =
      absl::IsDataLoss(why) ? ExitCode::kIntegrity : ExitCode::kMismatch;
  failure_ = WithExitCode(
      code, absl::Status(why.code(),
                         absl::StrCat("server/", rank_, ": ", why.message())));
}

}  // namespace telegrad
