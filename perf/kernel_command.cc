#include <cstdio>
#include <memory>
#include <string>

#include "base/exit_code.h"
#include "perf/kernel_cases.h"
#include "perf/options.h"

namespace telegrad::perf {
namespace {

std::vector<KernelCase> AllCases() {
  std::vector<KernelCase> cases;
  AppendTwoBitCases(cases);
  AppendCodeSumCases(cases);
  AppendDenseCases(cases);
  AppendNarrowCases(cases);
  AppendSelectionCases(cases);
  return cases;
}

absl::Status RunKernels(const SpeedOptions& options) {
  Meter meter("kernel", options);
  for (const KernelCase& each : AllCases()) {
    if (!meter.Takes(each.name)) continue;
    for (const double density : options.densities) {
      Job job = each.make(options.elements, density);
      job.name = each.name;
      for (const int threads : options.threads) {
        Team team(threads);
        meter.Run(job, team, options.elements);
      }
      if (!each.is_per_density) break;
    }
  }
  return meter.Finish();
}

}  // namespace

void AddKernelCommand(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<SpeedOptions>();
  AddSpeedFlags(app, *options);
  app.callback([options, &exit_code] {
    const absl::Status status = RunKernels(*options);
    if (status.ok()) return;
    std::fprintf(stderr, "telegrad-perf: %s\n",
                 std::string(status.message()).c_str());
    exit_code = static_cast<int>(ExitCodeOf(status));
  });
}

}  // namespace telegrad::perf
