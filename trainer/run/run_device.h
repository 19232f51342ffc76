#pragma once

#include "absl/status/statusor.h"
#include "base/device.h"
#include "trainer/run/worker_run.h"

namespace telegrad {

// Where device `index` of this worker computes: its part of --gpus, else the
// CPU. Tells once that GPUs are shared.
absl::StatusOr<Device> ChooseDevice(RunContext& context, int index);

}  // namespace telegrad
