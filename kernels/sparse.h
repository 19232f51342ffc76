#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/encode_stats.h"
#include "kernels/stream.h"

// A few elements of many: threshold, top-k, random-k.
namespace telegrad::kernels {

struct SparseKernels {};

}  // namespace telegrad::kernels
