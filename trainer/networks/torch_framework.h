#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/networks/network.h"

namespace telegrad {

// What stands behind Framework (trainer/networks/framework.h): its functions,
// by libtorch.
absl::Status ConfigureFramework(int num_threads, bool allows_tf32 = false);
absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const NetworkSpec& spec);
absl::StatusOr<int> LoadTorchGpus();  // gpus_cuda.cc or gpus_none.cc

}  // namespace telegrad
