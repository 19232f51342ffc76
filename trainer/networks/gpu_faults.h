#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/device.h"

namespace telegrad {

// "cuda:0 (NVIDIA H200, driver 580.65.06)".
std::string DescribeGpu(Device device);

// The statuses of a GPU that failed, exit code device_fault, and of one that
// has no memory left, exit code resource_limit: with the device, the driver's
// version and `text`, what CUDA or the framework says.
absl::Status GpuFault(Device device, absl::string_view text);
absl::Status NoGpuMemory(Device device, absl::string_view text);

}  // namespace telegrad
