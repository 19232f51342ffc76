#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/encode_stats.h"
#include "kernels/stream.h"

// One bit per element: MXNet's 1-bit and blocks with a scale each.
namespace telegrad::kernels {

struct SignKernels {};

}  // namespace telegrad::kernels
