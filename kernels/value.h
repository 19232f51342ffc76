#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/dense.h"
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

// The end of SampledPower: the mean of `samples` squares, whose sums by lane
// are in lanes[kPowerLanes], which are used up.
inline double MeanOfPowerLanes(double* lanes, size_t samples) {
  for (size_t width = kPowerLanes / 2; width > 0; width /= 2) {
    for (size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0] / static_cast<double>(samples);
}

// Adds what was seen in a part whose first element is `from`.
inline void AddPart(const EncodeStats& part, size_t from, EncodeStats* stats) {
  stats->num_nonzero += part.num_nonzero;
  stats->num_nonfinite += part.num_nonfinite;
  if (part.num_nonfinite != 0 &&
      part.first_nonfinite + from < stats->first_nonfinite) {
    stats->first_nonfinite = part.first_nonfinite + from;
  }
}

}  // namespace telegrad::kernels
