#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

// How many of the batch_size * devices samples of a worker's step each device
// takes, in the proportion of `work_load`; equally many without it.
// InvalidArgument where that gives no whole numbers, or names other than
// `devices` devices.
absl::StatusOr<std::vector<int>> SplitBatch(const std::vector<int>& work_load,
                                            int devices, int batch_size);

}  // namespace telegrad
