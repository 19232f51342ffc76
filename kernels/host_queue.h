#pragma once

#include <memory>

#include "kernels/device_queue.h"

namespace telegrad::kernels {

// The queue of a CPU, the emulated device included: all is done when a call
// returns.
std::unique_ptr<DeviceQueue> MakeHostQueue(Device device);

}  // namespace telegrad::kernels
