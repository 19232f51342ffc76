#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/job/control/fatal_exit.h"
#include "kvstore/program/placed_process.h"
#include "trainer/launch/cluster.h"
#include "trainer/launch/finished_runs.h"
#include "trainer/launch/process_title.h"
#include "trainer/run/worker_run.h"

namespace telegrad {
namespace {

// Whoever started the processes must know of the store what the flags say.
absl::Status CheckServers(const TrainOptions& options,
                          const Placement& placement) {
  const bool has_servers = placement.num_servers > 0;
  if (!placement.role.has_value() || has_servers != options.hosts_parts) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--kv-store ", options.kv_store,
      has_servers ? " has no servers, but " : " needs servers, but ",
      placement.num_servers, " are told of by ", placement.launcher));
}

// Settings with flags of their own have the processes that all have.
absl::Status ShareParts(const TrainOptions& options) {
  for (const Setting& setting : options.settings) {
    if (setting.own == nullptr) continue;
    TrainOptions& own = *setting.own;
    if (own.hosts_parts != options.hosts_parts) {
      return absl::InvalidArgumentError(absl::StrCat(
          "setting '", setting.name, "': --kv-store ", own.kv_store,
          own.hosts_parts ? " has no servers" : " needs servers",
          ", unlike --kv-store ", options.kv_store,
          ", for which the launcher has started processes"));
    }
    own.workers = options.workers;
    own.servers = options.servers;
    own.local_rank = options.local_rank;
  }
  return absl::OkStatus();
}

absl::Status RunAll(TrainOptions& options, const Placement& placement) {
  ASSIGN_OR_RETURN(Parts parts, PartsOf(placement, options));
  RETURN_IF_ERROR(CheckServers(options, placement));
  if (options.hosts_parts) parts.server_rank = Parts::kNone;  // the worker does
  options.workers = parts.num_workers;
  options.servers = parts.num_servers;
  RETURN_IF_ERROR(ShareParts(options));
  SetProcessTitle(TitleOf(parts));
  SetLogName(TitleOf(parts));
  const auto cancellation = std::make_shared<Cancellation>();
  const EndBySignal signals(TitleOf(parts), cancellation);
  MachineDetection detection(options.path.transport.bind_address);
  ASSIGN_OR_RETURN(const auto metrics,
                   StartMetrics(options.metrics, TitleOf(parts),
                                options.path.transport.bind_address,
                                !options.secret_file.empty()));
  FinishedRuns finished(options);
  std::unique_ptr<HeldFolder> out;
  if (parts.worker_rank == 0) {
    ASSIGN_OR_RETURN(out, HoldResultsFolder(options.out));
    ASSIGN_OR_RETURN(const std::string moved, finished.MoveOthers());
    if (!moved.empty()) LogWarning(moved);
  }
  const std::vector<ComparedRun>& runs = finished.wanted();
  PlacedProcess process(options, placement, parts, cancellation);
  RETURN_IF_ERROR(process.FindScheduler(static_cast<int>(runs.size())));
  Output display(STDOUT_FILENO);
  for (const ComparedRun& run : runs) {
    const auto number = static_cast<int>(&run - runs.data()) + 1;
    const auto count = static_cast<int>(runs.size());
    ConsoleObserver observer(
        display, {.label = run.label, .number = number, .count = count},
        options.laboratory.log_json ? ConsoleObserver::Style::kJson
                                    : ConsoleObserver::Style::kLines);
    ASSIGN_OR_RETURN(
        DistOptions options_of_run,
        MakeDistOptions(OptionsOf(options, *run.setting), process.job_id()));
    options_of_run.flight = FlightLogOf(options, *run.setting, run.seed);
    options_of_run.server_trace =
        TracePrefix(options.laboratory.timeline, run.setting->name, run.seed);
    options_of_run.path.look = [&detection] { return detection.Get(); };
    options_of_run.metrics = RegistryOf(metrics);
    options_of_run.on_fatal = [&options](FatalEvent event) {
      event.message += AdviceOn(event.code, options);
      ExitFatally(event);
    };
    RETURN_IF_ERROR(
        process.RunNext(options_of_run, [&](const DistOptions& dist) {
          return RunAsWorker(OptionsOf(options, *run.setting),
                             SettledOf(*run.setting), run.seed, dist, detection,
                             observer);
        }));
    if (!observer.has_summary()) continue;
    finished.Add(observer.summary());
    const absl::Status written = finished.Write();
    if (!written.ok()) LogWarning(written.message());
  }
  return PrintResults(options, display, finished.all());
}

}  // namespace

int RunPlaced(TrainOptions options, const Placement& placement) {
  const absl::Status status = RunAll(options, placement);
  if (!status.ok()) {
    FatalEvent event{.code = ExitCodeOf(status)};
    event.message = std::string(status.message());
    event.self =
        ToString({placement.role.value_or(Role::kWorker), placement.rank});
    ExitFatally(event);
  }
  return 0;
}

}  // namespace telegrad
