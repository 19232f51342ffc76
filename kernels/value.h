#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/encode_stats.h"
#include "kernels/two_bit.h"

namespace telegrad::kernels {

// Residual plus gradient of element i. kZero: where that is not finite, it is
// counted, and a gradient of 0 is taken instead; 0 where the residual is not
// finite either.
inline float Value(float residual, float grad, size_t i, NonFinite nonfinite,
                   EncodeStats* stats) {
  const float v = residual + grad;
  if (nonfinite != NonFinite::kZero || std::isfinite(v)) return v;
  ++stats->num_nonfinite;
  if (i < stats->first_nonfinite) stats->first_nonfinite = i;
  return std::isfinite(residual) ? residual + 0.0f : 0.0f;
}

}  // namespace telegrad::kernels
