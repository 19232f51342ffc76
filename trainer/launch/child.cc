#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "kvstore/job/control/fatal_exit.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/program/write_by_signal.h"
#include "kvstore/server.h"
#include "trainer/launch/child_pipe.h"
#include "trainer/launch/cluster.h"
#include "trainer/launch/process_title.h"
#include "trainer/run/worker_run.h"

namespace telegrad {
namespace {

// The launcher ends what is left a little later; all are on this machine.
constexpr Duration kTeardown = std::chrono::milliseconds(1500);

FatalListener TellsLauncher(ReportPipe& pipe) {
  return [&pipe](const FatalEvent& event) { pipe.SendFatal(event); };
}

using StartedMetrics = std::unique_ptr<ProcessMetrics>;

StartedMetrics MetricsOf(const TrainOptions& options, NodeId self,
                         ReportPipe& pipe) {
  absl::StatusOr<StartedMetrics> made = StartMetrics(
      options.metrics, ToString(self), options.path.transport.bind_address,
      !options.secret_file.empty());
  if (!made.ok()) ExitWithStatus(made.status(), self, TellsLauncher(pipe));
  return *std::move(made);
}

int RunSchedulerChild(const TrainOptions& options, ReportPipe& pipe) {
  const NodeId self{Role::kScheduler, 0};
  const StartedMetrics metrics = MetricsOf(options, self, pipe);
  const auto dist = MakeDistOptions(options, options.job_id);
  if (!dist.ok()) ExitWithStatus(dist.status(), self, TellsLauncher(pipe));
  SchedulerOptions scheduler_options{
      .num_workers = options.workers,
      .num_servers = options.hosts_parts ? options.workers : options.servers,
      .bind_address = options.path.transport.bind_address,
      .port = 0,
      .job_id = options.job_id,
      .secret = dist->secret,
      .insecure = options.insecure,
      .timing = TimingOf(options),
      .metrics = RegistryOf(metrics)};
  scheduler_options.timing.teardown = kTeardown;
  // Members are started by the launcher: nobody can help them.
  scheduler_options.timing.first_word = scheduler_options.timing.join;
  const auto scheduler = Scheduler::Start(scheduler_options);
  if (!scheduler.ok())
    ExitWithStatus(scheduler.status(), self, TellsLauncher(pipe));
  pipe.SendAddress((*scheduler)->address());
  FatalEvent event;
  const absl::Status status = (*scheduler)->Wait(&event);
  if (status.ok()) return 0;
  event.self = ToString(self);
  ExitFatally(event, TellsLauncher(pipe));
}

}  // namespace

// A process that RunEmbedded has started.
int RunChild(const TrainOptions& options) {
  ReportPipe pipe(options.internal_report_fd);
  const int rank = options.internal_rank;
  const auto index = static_cast<size_t>(options.internal_setting);
  if (index >= options.settings.size()) return 2;
  SetProcessTitle(absl::StrCat(
      options.internal_role,
      options.internal_role == "scheduler" ? "" : absl::StrCat(" ", rank),
      " of ", options.settings[index].name, ", seed ", options.internal_seed));
  if (options.internal_role == "scheduler") {
    SetLogName("scheduler");
    return RunSchedulerChild(options, pipe);
  }
  const NodeId self{
      options.internal_role == "server" ? Role::kServer : Role::kWorker, rank};
  SetLogName(ToString(self));
  auto dist = MakeDistOptions(options, options.job_id);
  if (!dist.ok()) ExitWithStatus(dist.status(), self, TellsLauncher(pipe));
  const StartedMetrics metrics = MetricsOf(options, self, pipe);
  dist->metrics = RegistryOf(metrics);
  dist->scheduler_address = options.internal_scheduler;
  dist->wanted_rank = rank;
  dist->on_fatal = [tell = TellsLauncher(pipe)](const FatalEvent& event) {
    ExitFatally(event, tell);
  };
  // A server on this host alone has no use for it.
  std::optional<MachineDetection> detection;
  if (self.role == Role::kWorker ||
      !IsOneHost(options.path.transport.bind_address)) {
    detection.emplace(options.path.transport.bind_address);
    dist->path.look = [&detection] { return detection->Get(); };
  }
  dist->flight =
      FlightLogOf(options, options.settings[index], options.internal_seed);
  const WriteBySignal records(dist->flight);
  dist->server_trace =
      TracePrefix(options.laboratory.timeline, options.settings[index].name,
                  options.internal_seed);
  absl::Status status;
  if (self.role == Role::kServer) {
    status = RunServer({.job = *dist, .num_threads = dist->num_threads});
  } else {
    status = RunAsWorker(options, options.settings[index],
                         options.internal_seed, *dist, *detection, pipe);
  }
  if (!status.ok()) ExitWithStatus(status, self, TellsLauncher(pipe));
  pipe.SendPeakMemory(PeakMemoryBytes());
  return 0;
}

}  // namespace telegrad
