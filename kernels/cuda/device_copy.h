#pragma once

#include <memory>

#include "kernels/device_copy.h"

namespace telegrad::kernels::cuda {

// A copier on the current device and those that payloads name.
std::unique_ptr<DeviceCopier> MakeCopier();

}  // namespace telegrad::kernels::cuda
