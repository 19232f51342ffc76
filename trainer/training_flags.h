#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/dataset.h"
#include "trainer/network.h"
#include "trainer/options.h"

namespace telegrad {

// What is trained: network, data, schedule.
void AddTrainingFlags(CLI::App& app, TrainOptions& options);

// After parsing: the network by its full name, flags that belong together.
absl::Status FinishTrainingFlags(TrainOptions& options);

// The network for input as the flags have it, where no data decide; with the
// first seed. Errors as ShapeOf's.
absl::StatusOr<NetworkSpec> RequestedSpec(const TrainOptions& options);

// Makes `spec` one for samples of this shape.
void Fit(const SampleShape& samples, NetworkSpec& spec);
SampleShape SamplesOf(const NetworkSpec& spec);

}  // namespace telegrad
