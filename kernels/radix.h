#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/encode_stats.h"
#include "kernels/stream.h"

// Ternary codes and their sums as digits of larger numbers.
namespace telegrad::kernels {

struct RadixKernels {};

}  // namespace telegrad::kernels
