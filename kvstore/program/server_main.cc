// telegrad-server: a server or the scheduler of a job, without libtorch.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/command_line.h"
#include "base/exit_code.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/resource_limit.h"
#include "base/status_macros.h"
#include "kvstore/job/control/fatal_exit.h"
#include "kvstore/program/placed_process.h"
#include "kvstore/program/write_by_signal.h"
#include "kvstore/tuning/machine_detection.h"

namespace telegrad {
namespace {

constexpr char kDescription[] =
    "Runs a server of a job, or its scheduler. By hand with --scheduler and "
    "--role, or\nunder mpirun, srun, torchrun-style or DMLC_* environments, "
    "which give the role.";

struct ServerFlags : MemberFlags {
  std::string role = "server";
  int runs = 1;
  std::string timeline;  // folder; empty: no traces
};

absl::StatusOr<std::optional<Placement>> FindPlacement(
    const ServerFlags& flags) {
  if (!flags.scheduler.empty()) {
    return PlacementByHand(
        flags.role == "scheduler" ? Role::kScheduler : Role::kServer,
        flags.scheduler, flags.workers, flags.servers);
  }
  return DetectPlacement(
      [](const char* name) -> const char* { return std::getenv(name); });
}

absl::StatusOr<Parts> CheckedParts(const ServerFlags& flags,
                                   const Placement& placement) {
  ASSIGN_OR_RETURN(const Parts parts, PartsOf(placement, flags));
  if (parts.server_rank != Parts::kNone && placement.role.has_value() &&
      placement.num_servers == 0) {
    return absl::InvalidArgumentError(
        "this process would be a server of a job with --servers 0, whose "
        "workers sum by themselves: start none, or give --servers");
  }
  if (parts.worker_rank == Parts::kNone) return parts;
  return absl::InvalidArgumentError(absl::StrCat(
      "this process is worker ", parts.worker_rank,
      ", but telegrad-server does not train: give it the last ranks, and all "
      "processes --servers with how many they are"));
}

absl::Status Serve(const ServerFlags& flags, const Placement& placement,
                   const Parts& parts, MachineDetection& detection) {
  const auto cancellation = std::make_shared<Cancellation>();
  const EndBySignal signals(TitleOf(parts), cancellation);
  ASSIGN_OR_RETURN(const auto metrics,
                   StartMetrics(flags.metrics, TitleOf(parts),
                                flags.path.transport.bind_address,
                                !flags.secret_file.empty()));
  PlacedProcess process(flags, placement, parts, cancellation);
  RETURN_IF_ERROR(process.FindScheduler(flags.runs));
  for (int run = 0; run < flags.runs; ++run) {
    ASSIGN_OR_RETURN(DistOptions dist, DistOptionsOf(flags, process.job_id()));
    dist.path.look = [&detection] { return detection.Get(); };
    dist.metrics = RegistryOf(metrics);
    if (!flags.timeline.empty()) {
      dist.server_trace = absl::StrCat(flags.timeline, "/run", run);
    }
    RETURN_IF_ERROR(process.RunNext(dist, nullptr));
  }
  return absl::OkStatus();
}

int Refused(const absl::Status& why) {
  std::cerr << "telegrad-server: " << why.message() << "\n";
  const bool is_late = ExitCodeOf(why) == ExitCode::kJoinTimeout;
  return static_cast<int>(is_late ? ExitCode::kJoinTimeout : ExitCode::kUsage);
}

int Run(const CLI::App& app, ServerFlags& flags) {
  if (const auto status = FinishMemberFlags(app, flags); !status.ok()) {
    return Refused(status);
  }
  if (!flags.timeline.empty()) {
    const auto made = MakeFolder("--timeline", flags.timeline);
    if (!made.ok()) return Refused(made);
  }
  const auto placement = FindPlacement(flags);
  if (!placement.ok()) return Refused(placement.status());
  if (!placement->has_value()) {
    return Refused(absl::InvalidArgumentError(
        "no launcher's variables are set: give --scheduler host:port, or start "
        "it by mpirun, srun or with DMLC_ROLE"));
  }
  std::string& address = flags.path.transport.bind_address;
  const auto bind = BindAddress(address, &**placement, flags.join_timeout_s);
  if (!bind.ok()) return Refused(bind.status());
  address = *bind;
  MachineDetection detection(address);
  const auto path =
      CheckMemberPath(flags, [&detection] { return detection.Get(); });
  if (!path.ok()) return Refused(path);
  const auto parts = CheckedParts(flags, **placement);
  if (!parts.ok()) return Refused(parts.status());
  SetLogName(TitleOf(*parts));
  const absl::Status status = Serve(flags, **placement, *parts, detection);
  if (status.ok()) return 0;
  FatalEvent event{.code = ExitCodeOf(status)};
  event.message = std::string(status.message());
  event.self = TitleOf(*parts);
  ExitFatally(event);
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  telegrad::IgnoreFlightSignal();
  telegrad::EndWhenOutOfMemory();
  telegrad::RaiseOpenFileLimit();
  telegrad::ServerFlags flags;
  CLI::App app(telegrad::kDescription, "telegrad-server");
  app.add_option("--role", flags.role, "with --scheduler: server or scheduler")
      ->check(CLI::IsMember({"server", "scheduler"}))
      ->capture_default_str();
  app.add_option("--runs", flags.runs,
                 "runs of a comparison (settings times seeds), one after the "
                 "other, at ports in a row")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--timeline", flags.timeline,
                 "folder for Chrome traces, one of each run: what it did in "
                 "three steps, the 6th to 8th; DIR/run0-server0.json");
  telegrad::AddMemberFlags(app, flags);
  app.set_version_flag("--version", TELEGRAD_VERSION);
  telegrad::RefuseNan(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return telegrad::ExitOfCommandLine(app, error);
  }
  return telegrad::Run(app, flags);
}
