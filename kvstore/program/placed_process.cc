#include "kvstore/program/placed_process.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/job/control/fatal_exit.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/program/write_by_signal.h"
#include "kvstore/server.h"

namespace telegrad {
namespace {

int WantedRank(int rank) { return rank == Parts::kAnyRank ? -1 : rank; }

}  // namespace

PlacedProcess::PlacedProcess(const MemberFlags& flags,
                             const Placement& placement, const Parts& parts,
                             std::shared_ptr<Cancellation> cancellation)
    : flags_(flags),
      placement_(placement),
      parts_(parts),
      cancellation_(std::move(cancellation)) {}

absl::Status PlacedProcess::FindScheduler(int num_runs) {
  num_runs_ = num_runs;
  ASSIGN_OR_RETURN(scheduler_,
                   telegrad::FindScheduler(
                       placement_, flags_.path.transport.bind_address, num_runs,
                       static_cast<int>(flags_.join_timeout_s)));
  return absl::OkStatus();
}

std::string PlacedProcess::job_id() const {
  return absl::StrCat(flags_.job_id.empty() ? placement_.job_id : flags_.job_id,
                      "-", next_run_);
}

absl::StatusOr<std::unique_ptr<Scheduler>> PlacedProcess::StartScheduler(
    const DistOptions& dist) const {
  if (!parts_.is_scheduler) return nullptr;
  return Scheduler::Start({.num_workers = parts_.num_workers,
                           .num_servers = parts_.num_servers,
                           .bind_address = SchedulerBindAddress(
                               flags_.path.transport.bind_address, placement_),
                           .port = scheduler_.port,
                           .job_id = dist.job_id,
                           .secret = dist.secret,
                           .insecure = flags_.insecure,
                           .timing = dist.timing,
                           .cancellation = cancellation_,
                           .metrics = dist.metrics});
}

absl::Status PlacedProcess::RunNext(DistOptions dist, const Work& work) {
  const WriteBySignal records(dist.flight);
  dist.cancellation = cancellation_;
  dist.facts.emplace_back("--runs (settings times seeds)",
                          absl::StrCat(num_runs_));
  if (!dist.on_fatal) {
    dist.on_fatal = [](const FatalEvent& event) { ExitFatally(event); };
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler,
                   StartScheduler(dist));
  dist.scheduler_address =
      scheduler != nullptr ? scheduler->address()
                           : FormatHostPort(scheduler_.host, scheduler_.port);
  const bool serves = parts_.server_rank != Parts::kNone;
  const bool works = parts_.worker_rank != Parts::kNone;
  std::thread server;
  if (serves) {
    DistOptions own = dist;
    own.wanted_rank = WantedRank(parts_.server_rank);
    if (works) own.on_wait = [](const std::string&) {};  // the worker says it
    server = StartThread([own, tells = scheduler.get()] {
      const absl::Status status =
          RunServer({.job = own, .num_threads = own.num_threads});
      if (status.ok()) return;
      ExitWithStatus(status, {Role::kServer, own.wanted_rank}, nullptr, tells);
    });
  }
  if (works) {
    dist.wanted_rank = WantedRank(parts_.worker_rank);
    const absl::Status status = work(dist);
    if (!status.ok()) {
      ExitWithStatus(status, {Role::kWorker, dist.wanted_rank}, nullptr,
                     scheduler.get());
    }
  }
  if (serves) server.join();
  ++next_run_;
  ++scheduler_.port;
  if (scheduler == nullptr) return absl::OkStatus();
  FatalEvent event;
  if (scheduler->Wait(&event).ok()) return absl::OkStatus();
  event.self = ToString({Role::kScheduler, 0});
  ExitFatally(event);
}

}  // namespace telegrad
