#pragma once

#include <memory>

#include "kernels/device_queue.h"

namespace telegrad::kernels::cuda {

// For a device that the probe has found.
std::unique_ptr<DeviceQueue> MakeQueue(int ordinal);

}  // namespace telegrad::kernels::cuda
