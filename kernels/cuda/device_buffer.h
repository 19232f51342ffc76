#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace telegrad::kernels::cuda {

// KernelTable::make_buffer.
Buffer MakeDeviceBuffer(size_t size);

}  // namespace telegrad::kernels::cuda
