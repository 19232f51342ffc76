#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/encode_stats.h"
#include "kernels/stream.h"

// Block-wise quantisation to a few bits, deterministic and stochastic.
namespace telegrad::kernels {

struct BlockKernels {};

}  // namespace telegrad::kernels
