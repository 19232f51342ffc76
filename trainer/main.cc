#include <signal.h>

#include <cstdlib>
#include <iostream>

#include "base/check.h"
#include "base/exit_code.h"
#include "base/resource_limit.h"
#include "kvstore/job/launch/child_processes.h"
#include "kvstore/job/launch/placement.h"
#include "kvstore/program/write_by_signal.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpointing.h"
#include "trainer/flags/options.h"
#include "trainer/launch/check_inputs.h"
#include "trainer/launch/cluster.h"
#include "trainer/launch/explain.h"
#include "trainer/launch/process_title.h"
#include "trainer/networks/framework.h"

namespace telegrad {
namespace {

int Refuse(const absl::Status& why) {
  std::cerr << "telegrad-train: " << why.message() << "\n";
  const ExitCode code = ExitCodeOf(why);
  const bool is_told =
      code == ExitCode::kAuthentication || code == ExitCode::kMismatch ||
      code == ExitCode::kResourceLimit || code == ExitCode::kJoinTimeout ||
      code == ExitCode::kNoCheckpoint;
  return static_cast<int>(is_told ? code : ExitCode::kUsage);
}

int Show(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return Refuse(text.status());
  std::cout << *text;
  return 0;
}

int Run(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  IgnoreFlightSignal();
  EndWhenOutOfMemory();
  RaiseOpenFileLimit();
  HoldCheckpointSignal();
  int exit_code = -1;
  TrainOptions options = ParseTrainOptions(argc, argv, &exit_code);
  if (exit_code >= 0) return exit_code;
  if (!options.show_checkpoint.empty()) {
    return Show(DescribeCheckpoints(options.show_checkpoint));
  }
  const bool is_child = !options.internal_role.empty();
  absl::StatusOr<std::optional<Placement>> placement = std::nullopt;
  if (!is_child && options.scheduler.empty()) {
    placement = DetectPlacement(
        [](const char* name) -> const char* { return std::getenv(name); });
  } else if (!is_child) {
    placement = PlacementByHand(Role::kWorker, options.scheduler,
                                options.workers, options.servers);
  }
  if (!placement.ok()) return Refuse(placement.status());
  const absl::StatusOr<std::string> bind =
      BindAddress(options.path.transport.bind_address,
                  placement->has_value() ? &**placement : nullptr,
                  options.laboratory.explain ? 0 : options.join_timeout_s);
  if (!bind.ok()) return Refuse(bind.status());
  options.path.transport.bind_address = *bind;
  for (Setting& setting : options.settings) {
    if (setting.own != nullptr)
      setting.own->path.transport.bind_address = *bind;
  }
  ChooseBlasKernels();
  if (is_child) return RunChild(options);

  absl::Status inputs = CheckInputs(options, *placement);
  for (const Setting& setting : options.settings) {
    if (setting.own == nullptr || !inputs.ok()) continue;
    inputs = CheckInputs(*setting.own, *placement);
  }
  if (!inputs.ok()) return Refuse(inputs);
  if (options.laboratory.explain) {
    return Show(ExplainRuns(options, *placement));
  }
  if (!placement->has_value()) return RunEmbedded(options, argv);
  // One BLAS thread per rank: ranks share the cores.
  setenv("OMP_NUM_THREADS", "1", 0);
  if ((*placement)->world_size > 0) {
    options.local_rank = (*placement)->local_rank;
  }
  return RunPlaced(options, **placement);
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  telegrad::AllowForks(&telegrad::Run);
  telegrad::InitProcessTitle(argc, argv);
  return telegrad::Run(argc, argv);
}
