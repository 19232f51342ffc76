#include "kernels/dense.h"

#include <cmath>
#include <cstring>

#include "kernels/reference.h"
#include "kernels/reference/sgd.h"
#include "kernels/value.h"

namespace telegrad::kernels::reference {

void AddF32(const float* x, size_t n, float* sum, Stream) {
  for (size_t i = 0; i < n; ++i) sum[i] += x[i];
}

void ScaleF32(float factor, size_t n, float* x, Stream) {
  for (size_t i = 0; i < n; ++i) x[i] *= factor;
}

void CountNonFinite(const float* x, size_t n, EncodeStats* stats, Stream) {
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(x[i])) continue;
    ++stats->num_nonfinite;
    if (i < stats->first_nonfinite) stats->first_nonfinite = i;
  }
}

void Copy(const void* from, size_t size, void* to, Stream) {
  if (from != to && size > 0) std::memcpy(to, from, size);
}

void Put(const void* value, size_t size, void* to, Stream) {
  if (size > 0) std::memcpy(to, value, size);
}

void SgdMomentum(const float* grad, size_t n, SgdParameters params,
                 float* weight, float* momentum, Stream) {
  for (size_t i = 0; i < n; ++i) {
    SgdStep(grad[i], params, weight[i], momentum[i]);
  }
}

void SampledPower(const float* grad, const float* residual, size_t n,
                  double* mean_square, Stream) {
  const size_t samples = n < kMaxPowerSamples ? n : kMaxPowerSamples;
  double lanes[kPowerLanes] = {};
  for (size_t j = 0; j < samples; ++j) {
    const size_t i = n <= kMaxPowerSamples ? j : PowerSample(j, n);
    const float v = (residual == nullptr ? 0.0f : residual[i]) + grad[i];
    const double value = std::isfinite(v) ? static_cast<double>(v) : 0.0;
    lanes[j % kPowerLanes] += value * value;
  }
  *mean_square = samples == 0 ? 0.0 : MeanOfPowerLanes(lanes, samples);
}

}  // namespace telegrad::kernels::reference
