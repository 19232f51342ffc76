#include "python/c/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/of_flag.h"
#include "base/socket.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/launch/placement.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/kvstore.h"
#include "kvstore/server.h"
#include "python/c/job_options.h"
#include "python/c/store_trace.h"

using telegrad::Clock;
using telegrad::DistOptions;
using telegrad::ExitCode;
using telegrad::FatalEvent;
using telegrad::Parts;
using telegrad::Placement;
using telegrad::Scheduler;
using telegrad::TimePoint;
using telegrad::c::CheckOptions;
using telegrad::c::DistOptionsOf;
using telegrad::c::TextOf;

// Options, with what the launcher says over them.
struct telegrad_job::Setup {
  int role = TELEGRAD_WORKER;
  int rank = -1;
  int num_workers = 1;
  int num_servers = 1;
  bool has_scheduler = false;
  std::vector<int> server_ranks;  // -1: any
  telegrad::HostPort scheduler;
  std::string scheduler_bind;
  std::string bind;
  bool insecure = false;
  std::string job_id;

  static absl::StatusOr<Setup> Of(const telegrad_job_options& options);

 private:
  absl::Status TakeLauncher(const telegrad_job_options& options);
  static absl::Status TakePart(const Placement& placement, Parts* parts);
};

// A job whose workers have the servers' parts.
absl::Status telegrad_job::Setup::TakePart(const Placement& placement,
                                           Parts* parts) {
  if (placement.role.has_value() && placement.num_servers > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers that sum for each other need no servers, but ",
                     placement.num_servers, " are told of by ",
                     placement.launcher, ": start it with none"));
  }
  parts->server_rank = Parts::kNone;
  parts->num_servers = parts->num_workers;
  return absl::OkStatus();
}

absl::Status telegrad_job::Setup::TakeLauncher(
    const telegrad_job_options& options) {
  ASSIGN_OR_RETURN(const std::optional<Placement> placement,
                   telegrad::DetectPlacement([](const char* name) {
                     return static_cast<const char*>(std::getenv(name));
                   }));
  if (!placement.has_value()) {
    return absl::InvalidArgumentError(
        "no launcher's variables are set (DMLC_ROLE, RANK and MASTER_ADDR, "
        "OMPI_COMM_WORLD_RANK, SLURM_PROCID): start it by one, or give the "
        "scheduler's address");
  }
  ASSIGN_OR_RETURN(Parts parts, telegrad::PartsOf(*placement, 0));
  if (options.hosts_part != 0) RETURN_IF_ERROR(TakePart(*placement, &parts));
  ASSIGN_OR_RETURN(bind,
                   telegrad::BindAddress(TextOf(options.bind, "127.0.0.1"),
                                         &*placement, options.join_timeout_s));
  ASSIGN_OR_RETURN(
      scheduler,
      telegrad::FindScheduler(*placement, bind, 1,
                              static_cast<int>(options.join_timeout_s) + 1));
  scheduler_bind = telegrad::SchedulerBindAddress(bind, *placement);
  job_id = options.job_id == nullptr ? placement->job_id : options.job_id;
  num_workers = parts.num_workers;
  num_servers = parts.num_servers;
  has_scheduler = parts.is_scheduler;
  const auto rank_of = [](int r) { return r == Parts::kAnyRank ? -1 : r; };
  if (parts.server_rank != Parts::kNone) {
    server_ranks.push_back(rank_of(parts.server_rank));
  }
  rank = rank_of(parts.worker_rank);
  role = parts.worker_rank != Parts::kNone   ? TELEGRAD_WORKER
         : parts.server_rank != Parts::kNone ? TELEGRAD_SERVER
                                             : TELEGRAD_SCHEDULER;
  return absl::OkStatus();
}

absl::StatusOr<telegrad_job::Setup> telegrad_job::Setup::Of(
    const telegrad_job_options& options) {
  Setup setup;
  setup.insecure = options.insecure != 0;
  setup.job_id = TextOf(options.job_id, "local");
  if (options.from_launcher != 0) {
    RETURN_IF_ERROR(setup.TakeLauncher(options));
    return setup;
  }
  setup.role = options.role;
  setup.rank = options.rank;
  setup.num_workers = options.num_workers;
  const bool hosts_part = options.hosts_part != 0;
  setup.num_servers = hosts_part ? options.num_workers : options.num_servers;
  setup.has_scheduler =
      options.has_scheduler != 0 || options.role == TELEGRAD_SCHEDULER;
  int servers = options.servers_here;
  if (options.scheduler == nullptr) {
    if (!setup.has_scheduler && setup.num_workers > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a job of ", setup.num_workers,
          " workers without a scheduler's address: give `scheduler`, or "
          "has_scheduler in one process and its address to the others"));
    }
    if (!setup.has_scheduler && !hosts_part) servers = setup.num_servers;
    setup.has_scheduler = true;
  }
  if (setup.role == TELEGRAD_SERVER && servers == 0) servers = 1;
  // One alone may ask for its worker's rank; several take what is left.
  const bool is_beside = servers == 1 && setup.role == TELEGRAD_WORKER &&
                         setup.rank >= 0 &&
                         setup.num_servers == setup.num_workers;
  setup.server_ranks.assign(static_cast<size_t>(servers),
                            is_beside ? setup.rank : -1);
  ASSIGN_OR_RETURN(
      setup.scheduler,
      telegrad::ParseHostPort(TextOf(options.scheduler, "127.0.0.1:0"),
                              setup.has_scheduler ? 0 : 1));
  const auto placement = telegrad::PlacementByHand(
      telegrad::Role::kWorker,
      telegrad::FormatHostPort(setup.scheduler.host,
                               std::max(setup.scheduler.port, 1)),
      setup.num_workers, setup.num_servers);
  RETURN_IF_ERROR(placement.status());
  ASSIGN_OR_RETURN(setup.bind,
                   telegrad::BindAddress(TextOf(options.bind, "127.0.0.1"),
                                         &**placement, options.join_timeout_s));
  setup.scheduler_bind =
      options.scheduler == nullptr
          ? setup.bind
          : telegrad::SchedulerBindAddress(setup.bind, **placement);
  return setup;
}

absl::Status telegrad_job::Start(const telegrad_job_options& options,
                                 std::unique_ptr<telegrad_job>* job) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const Setup setup, Setup::Of(options));
  RETURN_IF_ERROR(telegrad::c::CheckLimits(options, setup.num_workers));
  std::unique_ptr<telegrad_job> made(new telegrad_job);
  ASSIGN_OR_RETURN(made->options_, DistOptionsOf(options, setup.bind));
  if (made->options_.job_id != setup.job_id)
    made->options_.job_id = setup.job_id;
  RETURN_IF_ERROR(telegrad::CheckPath(made->options_.path.transport));
  made->role_ = setup.role;
  made->worker_rank_ = setup.rank;
  made->options_.cancellation = made->cancellation_;
  if (const char* const forced = std::getenv("TELEGRAD_ALLREDUCE")) {
    ASSIGN_OR_RETURN(
        made->allreduce_,
        telegrad::OfFlag("TELEGRAD_ALLREDUCE", forced,
                         telegrad::ParseCollectiveAlgorithm(forced)));
  }
  const char* const records = std::getenv("TELEGRAD_FLIGHT_RECORDER");
  const std::string folder =
      TextOf(options.flight_recorder, records == nullptr ? "" : records);
  if (!folder.empty()) {
    RETURN_IF_ERROR(telegrad::MakeFolder("flight_recorder", folder));
  }
  if (const char* const ledger = std::getenv("TELEGRAD_LEDGER")) {
    made->options_.ledger = ledger;
    RETURN_IF_ERROR(telegrad::MakeFolder("TELEGRAD_LEDGER", ledger));
  }
  if (const char* const traces = std::getenv("TELEGRAD_TIMELINE")) {
    RETURN_IF_ERROR(telegrad::MakeFolder("TELEGRAD_TIMELINE", traces));
    made->options_.server_trace =
        telegrad::c::TracePrefix(traces, setup.job_id);
  }
  made->options_.flight = std::make_shared<telegrad::FlightLog>(folder);
  made->options_.on_wait = [to = made->waiting_](const std::string& text) {
    telegrad::MutexLock lock(&to->mutex);
    if (!to->is_asked_for && to->text.empty()) telegrad::LogWarning(text);
    to->text = text;
  };
  made->options_.scheduler_address =
      telegrad::FormatHostPort(setup.scheduler.host, setup.scheduler.port);
  RETURN_IF_ERROR(made->StartMetrics(options));
  if (setup.has_scheduler) RETURN_IF_ERROR(made->StartScheduler(setup));
  for (const int rank : setup.server_ranks) made->StartServer(rank);
  *job = std::move(made);
  return absl::OkStatus();
}

absl::Status telegrad_job::StartMetrics(const telegrad_job_options& options) {
  telegrad::MetricsOutlet outlet{.file = TextOf(options.metrics_file, "")};
  if (options.metrics_port != 0) {
    outlet.port = std::max(options.metrics_port, 0);
    if (options_.secret.has_key()) {
      outlet.ip = options_.path.transport.bind_address;
    }
  }
  ASSIGN_OR_RETURN(
      metrics_,
      telegrad::ProcessMetrics::Start(
          outlet, telegrad::CommonLabels(std::getenv("SLURM_JOB_ID"))));
  metrics_address_ = metrics_->address();
  options_.metrics = &metrics_->registry();
  return absl::OkStatus();
}

absl::Status telegrad_job::StartScheduler(const Setup& setup) {
  ASSIGN_OR_RETURN(scheduler_,
                   Scheduler::Start({.num_workers = setup.num_workers,
                                     .num_servers = setup.num_servers,
                                     .bind_address = setup.scheduler_bind,
                                     .port = setup.scheduler.port,
                                     .job_id = options_.job_id,
                                     .secret = options_.secret,
                                     .insecure = setup.insecure,
                                     .timing = options_.timing,
                                     .cancellation = cancellation_,
                                     .metrics = options_.metrics}));
  options_.scheduler_address = scheduler_->address();
  parts_.push_back(
      telegrad::StartAsync([scheduler = scheduler_.get(), verdict = verdict_] {
        FatalEvent event;
        const absl::Status status = scheduler->Wait(&event);
        if (!status.ok()) verdict->Set(event);
        return status;
      }));
  return absl::OkStatus();
}

std::string telegrad_job::WaitsFor() const {
  telegrad::MutexLock lock(&waiting_->mutex);
  waiting_->is_asked_for = true;
  return waiting_->text;
}

void telegrad_job::StartServer(int rank) {
  DistOptions options = options_;
  options.wanted_rank = rank;
  options.on_fatal = [verdict = verdict_](const FatalEvent& event) {
    verdict->Set(event);
  };
  parts_.push_back(telegrad::StartAsync([options] {
    return telegrad::RunServer(
        {.job = options, .num_threads = options.num_threads});
  }));
}

absl::Status telegrad_job::Join() {
  if (role_ != TELEGRAD_WORKER || group_ != nullptr) {
    return absl::FailedPreconditionError(
        role_ == TELEGRAD_WORKER
            ? "the worker has joined already"
            : "this process is no worker: telegrad_job_serve is for it");
  }
  telegrad::JobOptions options = options_;
  options.wanted_rank = worker_rank_;
  options.on_fatal = [verdict = verdict_](const FatalEvent& event) {
    verdict->Set(event);
  };
  options.on_epoch = options.on_fatal;
  return Enter(telegrad::JoinWorkers(options));
}

bool telegrad_job::PartsHaveEnded(TimePoint deadline) {
  for (auto& part : parts_) {
    if (part.wait_until(deadline) != std::future_status::ready) return false;
  }
  return true;
}

std::optional<absl::Status> telegrad_job::Serve(TimePoint deadline) {
  if (role_ == TELEGRAD_WORKER) {
    return absl::FailedPreconditionError("this process is a worker");
  }
  if (!PartsHaveEnded(deadline)) return std::nullopt;
  absl::Status all;
  for (auto& part : parts_) all.Update(part.get());
  parts_.clear();
  return all;
}

void telegrad_job::Fail(ExitCode code, const std::string& message) {
  FatalEvent event{.code = code, .message = message};
  telegrad::WorkerGroup* const group = joined_;
  event.self = group == nullptr ? absl::StrCat("process ", getpid())
                                : telegrad::ToString(group->membership().self);
  if (group != nullptr) {
    group->Fail(telegrad::WithExitCode(code, absl::UnavailableError(message)));
  }
  if (scheduler_ != nullptr) scheduler_->Fail(event);
  cancellation_->Cancel(event);
}

absl::Status telegrad_job::Close(TimePoint deadline) {
  if (group_ != nullptr && !has_store_) group_->Leave();
  if (group_ != nullptr &&
      (options_.part != nullptr || !group_->data_path().plan.pushers.empty())) {
    // Its part of the sums ends when the others have left, too.
    joined_ = nullptr;
    parts_.push_back(telegrad::StartAsync([this] {
      group_.reset();
      return absl::OkStatus();
    }));
  }
  absl::Status status;
  if (!PartsHaveEnded(deadline)) {
    status = absl::DeadlineExceededError(
        "other workers have not left the job by then: its servers and "
        "scheduler in this process are ended");
    Fail(ExitCode::kCancelled, std::string(status.message()));
  }
  for (auto& part : parts_) status.Update(part.get());
  parts_.clear();
  return status;
}

telegrad_job::~telegrad_job() {
  // Parts use the scheduler; a future of std::async waits for its thread.
  if (!parts_.empty()) Fail(ExitCode::kCancelled, "the job was given up");
  parts_.clear();
}
