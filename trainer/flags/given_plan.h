#pragma once

#include <optional>
#include <span>

#include "absl/status/status.h"
#include "trainer/flags/options.h"

// What --plan means for a run; each is nothing without it. Errors name the file
// and what does not fit.
namespace telegrad {

// Sets what the plan decides of flags: settings, chunks, the store.
// InvalidArgument where a flag says otherwise.
absl::Status SettleGivenPlan(TrainOptions& options);

// A plan is for these tensors and no others.
absl::Status CheckPlannedTensors(const TrainOptions& options,
                                 std::span<const TensorSpec> tensors);

// All of a job without a launcher are on this machine.
absl::Status CheckPlannedMachines(const TrainOptions& options,
                                  const std::optional<Placement>& placement);

}  // namespace telegrad
