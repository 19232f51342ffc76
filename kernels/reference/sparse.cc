#include "kernels/sparse.h"

#include <cfloat>
#include <cmath>

#include "kernels/reference.h"
#include "kernels/reference/half.h"

namespace telegrad::kernels::reference {
namespace {

void CountNonFiniteAt(size_t i, EncodeStats* stats) {
  ++stats->num_nonfinite;
  if (i < stats->first_nonfinite) stats->first_nonfinite = i;
}

bool IsLarge(float v, float threshold) {
  const float magnitude = std::fabs(v);
  return magnitude >= threshold && magnitude <= FLT_MAX;
}

template <typename Format>
void ThresholdEncode(const typename Format::Element* grad, float* residual,
                     float* momentum, size_t n, float threshold,
                     NonFinite nonfinite, uint32_t* survivors,
                     uint64_t* num_survivors, EncodeStats* stats, void*,
                     Stream) {
  uint64_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    float v = residual[i] + Format::Float(grad[i]);
    if (nonfinite == NonFinite::kZero && !std::isfinite(v)) {
      CountNonFiniteAt(i, stats);
      v = residual[i] + 0.0f;
    }
    if (v >= threshold) {
      survivors[count++] = static_cast<uint32_t>(i << 1);
      v -= threshold;
    } else if (v <= -threshold) {
      survivors[count++] = static_cast<uint32_t>(i << 1 | 1);
      v += threshold;
    }
    residual[i] = v;
  }
  for (uint64_t s = 0; s < count && momentum != nullptr; ++s) {
    momentum[survivors[s] >> 1] = 0;
  }
  *num_survivors = count;
  stats->num_nonzero += count;
}

void LargeValues(const float* grad, float* residual, size_t n,
                 const float* threshold, NonFinite nonfinite, uint32_t* indices,
                 float* values, uint64_t* num_survivors, EncodeStats* stats,
                 void*, Stream) {
  const float least = ThresholdAt(threshold);
  uint64_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    float v = residual[i] + grad[i];
    if (nonfinite == NonFinite::kZero && !std::isfinite(v)) {
      CountNonFiniteAt(i, stats);
      v = residual[i] + 0.0f;
    }
    residual[i] = v;
    if (IsLarge(v, least)) {
      indices[count] = static_cast<uint32_t>(i);
      values[count++] = v;
    }
  }
  *num_survivors = count;
  stats->num_nonzero += count;
}

void MomentumLargeValues(const float* grad, MomentumCorrection correction,
                         float* momentum, float* residual, size_t n,
                         const float* threshold, NonFinite nonfinite,
                         uint32_t* indices, float* values,
                         uint64_t* num_survivors, EncodeStats* stats, void*,
                         Stream) {
  const float least = ThresholdAt(threshold);
  const float scale = ScaleAt(correction.scale);
  uint64_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    const float decayed = correction.rate * momentum[i];
    float u = decayed + scale * grad[i];
    float v = residual[i] + u;
    if (nonfinite == NonFinite::kZero && !std::isfinite(v)) {
      CountNonFiniteAt(i, stats);
      u = std::isfinite(residual[i] + decayed) ? decayed : 0.0f;
      v = residual[i] + u;
    }
    momentum[i] = u;
    residual[i] = v;
    if (IsLarge(v, least)) {
      indices[count] = static_cast<uint32_t>(i);
      values[count++] = v;
    }
  }
  *num_survivors = count;
  stats->num_nonzero += count;
}

}  // namespace

SparseKernels Sparse() {
  return {ThresholdEncode<OfFloat32>, ThresholdEncode<OfFp16>,
          ThresholdEncode<OfBf16>, LargeValues, MomentumLargeValues};
}

}  // namespace telegrad::kernels::reference
