#pragma once

#include <cstddef>
#include <cstdint>

#include "perf/huge_array.h"

// Gradients as encoders meet them.
namespace telegrad::perf {

// Normal with deviation 1; repeats after 2^16 elements, which no branch
// predictor learns.
HugeArray NormalGradient(size_t n);

// The threshold at which a share `density` of codes is not 0 when this gradient
// comes in every step: an element g sends min(|g| / t, 1) of the time.
float ThresholdFor(const float* grad, size_t n, double density);

// Residuals of such an encoder after many steps: uniform in [0, t) with the
// gradient's sign; others for each seed.
HugeArray SettledResidual(const float* grad, size_t n, float threshold,
                          uint64_t seed = 0);

}  // namespace telegrad::perf
