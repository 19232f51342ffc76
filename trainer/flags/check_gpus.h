#pragma once

#include "absl/status/status.h"
#include "trainer/flags/options.h"

namespace telegrad {

// What can be known of --gpus before anything starts. InvalidArgument names the
// device, the loader's or the driver's reason, or the flag that does not go
// with it.
absl::Status CheckGpus(const TrainOptions& options);
// InvalidArgument where --kv-store wants a GPU for each of --devices and --gpus
// has fewer.
absl::Status CheckNumGpus(const TrainOptions& options, size_t num_gpus);

}  // namespace telegrad
