#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/encode_stats.h"
#include "kernels/stream.h"

// Casts to 16-bit floats, with and without a residual.
namespace telegrad::kernels {

struct CastKernels {};

}  // namespace telegrad::kernels
