#include "kernels/reference/normal_adam.h"

#include <algorithm>
#include <cmath>

namespace telegrad::kernels::reference {
namespace {

constexpr size_t kSums = 32;

float MeanOf(const float* square, size_t n) {
  float sums[kSums] = {};
  for (size_t i = 0; i < n; i += kSums) {
    const size_t num = std::min(n - i, kSums);
    for (size_t j = 0; j < num; ++j) sums[j] += square[i + j];
  }
  for (size_t half = kSums / 2; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0] / static_cast<float>(n);
}

float SizeOf(float square, float mean, float floor) {
  return mean >= kLeastNormalMean ? std::sqrt((square + floor * mean) / mean)
                                  : 1.0f;
}

}  // namespace

void ToNormal(const float* square, size_t n, NormalStep normal, float* grad,
              Stream) {
  for (size_t begin = 0; begin < n; begin += kNormalBlock) {
    const size_t end = std::min(n, begin + kNormalBlock);
    const float block = MeanOf(square + begin, end - begin);
    for (size_t i = begin; i < end; ++i) {
      grad[i] = grad[i] / SizeOf(square[i], block, normal.floor);
    }
  }
}

void StepByNormal(const float* sum, size_t n, AdamStep step, NormalStep normal,
                  float* weight, float* mean, float* square, Stream) {
  for (size_t begin = 0; begin < n; begin += kNormalBlock) {
    const size_t end = std::min(n, begin + kNormalBlock);
    const float block = MeanOf(square + begin, end - begin);
    for (size_t i = begin; i < end; ++i) {
      const float w = step.keep * weight[i];
      const float d = SizeOf(square[i], block, normal.floor) * sum[i];
      const float g = step.rescale * d + step.weight_decay * w;
      mean[i] = step.beta1 * mean[i] + step.rest1 * g;
      square[i] = step.beta2 * square[i] + step.rest2 * (g * g);
      const float ahead = normal.mean_rate * mean[i] + normal.grad_rate * g;
      const float below = std::sqrt(square[i]) / step.root + step.epsilon;
      weight[i] = w - ahead / below;
    }
  }
}

}  // namespace telegrad::kernels::reference
