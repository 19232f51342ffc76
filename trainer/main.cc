#include <signal.h>

#include <cstdlib>
#include <iostream>

#include "base/exit_code.h"
#include "trainer/cluster.h"
#include "trainer/options.h"
#include "trainer/process_title.h"
#include "transport/placement.h"

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  int exit_code = -1;
  const telegrad::TrainOptions options =
      telegrad::ParseTrainOptions(argc, argv, &exit_code);
  if (exit_code >= 0) return exit_code;
  if (!options.internal_role.empty()) return telegrad::RunChild(options);

  if (const absl::Status inputs = telegrad::CheckInputs(options);
      !inputs.ok()) {
    std::cerr << "telegrad-train: " << inputs.message() << "\n";
    return static_cast<int>(telegrad::ExitCode::kUsage);
  }

  const auto placement = telegrad::DetectPlacement(
      [](const char* name) -> const char* { return std::getenv(name); });
  if (!placement.ok()) {
    std::cerr << "telegrad-train: " << placement.status().message() << "\n";
    return static_cast<int>(telegrad::ExitCode::kUsage);
  }
  if (!placement->has_value()) return telegrad::RunEmbedded(options, argv);
  // One BLAS thread per rank: ranks share the cores.
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  telegrad::InitProcessTitle(argc, argv);
  return telegrad::RunPlaced(options, **placement);
}
