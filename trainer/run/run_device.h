#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/device.h"
#include "trainer/run/worker_run.h"

namespace telegrad {

// Where device `index` of this worker computes: its part of --gpus, else the
// CPU. Tells once that GPUs are shared.
absl::StatusOr<Device> ChooseDevice(RunContext& context, int index);

// Compares what multiplies matrices, once devices are chosen: with Muon all
// workers multiply the same ones, each for itself, and shall have the same
// bits. Errors as AgreeOnFacts.
absl::Status AgreeOnProducts(RunContext& context);

}  // namespace telegrad
