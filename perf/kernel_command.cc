#include <memory>

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

void RunKernels(const SpeedOptions& options) {
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
}

}  // namespace

void AddKernelCommand(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<SpeedOptions>();
  AddSpeedFlags(app, *options);
  app.callback([options, &exit_code] {
    RunKernels(*options);
    exit_code = 0;
  });
}

}  // namespace telegrad::perf
