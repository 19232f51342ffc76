#include <signal.h>

#include <cstdlib>
#include <iostream>

#include "base/exit_code.h"
#include "trainer/check_inputs.h"
#include "trainer/checkpoint_folder.h"
#include "trainer/checkpointing.h"
#include "trainer/cluster.h"
#include "trainer/explain.h"
#include "trainer/options.h"
#include "trainer/process_title.h"
#include "transport/job/placement.h"

namespace {

int Refuse(const absl::Status& why) {
  std::cerr << "telegrad-train: " << why.message() << "\n";
  using telegrad::ExitCode;
  const ExitCode code = telegrad::ExitCodeOf(why);
  const bool is_told =
      code == ExitCode::kAuthentication || code == ExitCode::kNoCheckpoint;
  return static_cast<int>(is_told ? code : ExitCode::kUsage);
}

int Show(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return Refuse(text.status());
  std::cout << *text;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  telegrad::HoldCheckpointSignal();
  int exit_code = -1;
  telegrad::TrainOptions options =
      telegrad::ParseTrainOptions(argc, argv, &exit_code);
  if (exit_code >= 0) return exit_code;
  if (!options.show_checkpoint.empty()) {
    return Show(telegrad::DescribeCheckpoints(options.show_checkpoint));
  }
  const bool is_child = !options.internal_role.empty();
  absl::StatusOr<std::optional<telegrad::Placement>> placement = std::nullopt;
  if (!is_child && options.scheduler.empty()) {
    placement = telegrad::DetectPlacement(
        [](const char* name) -> const char* { return std::getenv(name); });
  } else if (!is_child) {
    placement =
        telegrad::PlacementByHand(telegrad::Role::kWorker, options.scheduler,
                                  options.workers, options.servers);
  }
  if (!placement.ok()) return Refuse(placement.status());
  const absl::StatusOr<std::string> bind = telegrad::BindAddress(
      options.bind, placement->has_value() ? &**placement : nullptr);
  if (!bind.ok()) return Refuse(bind.status());
  options.bind = *bind;
  for (telegrad::Setting& setting : options.settings) {
    if (setting.own != nullptr) setting.own->bind = *bind;
  }
  if (is_child) return telegrad::RunChild(options);

  absl::Status inputs = telegrad::CheckInputs(options, *placement);
  for (const telegrad::Setting& setting : options.settings) {
    if (setting.own == nullptr || !inputs.ok()) continue;
    inputs = telegrad::CheckInputs(*setting.own, *placement);
  }
  if (!inputs.ok()) return Refuse(inputs);
  if (options.laboratory.explain) {
    return Show(telegrad::ExplainRuns(options, *placement));
  }
  if (!placement->has_value()) return telegrad::RunEmbedded(options, argv);
  // One BLAS thread per rank: ranks share the cores.
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  telegrad::InitProcessTitle(argc, argv);
  if ((*placement)->world_size > 0) {
    options.local_rank = (*placement)->local_rank;
  }
  return telegrad::RunPlaced(options, **placement);
}
