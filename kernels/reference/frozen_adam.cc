#include "kernels/reference/frozen_adam.h"

#include <cmath>

namespace telegrad::kernels::reference {

void ToMean(const float* mean, const float* weight, size_t n, AdamStep step,
            float* grad, Stream) {
  for (size_t i = 0; i < n; ++i) {
    grad[i] = step.beta1 * mean[i] +
              step.rest1 * (grad[i] + step.weight_decay * weight[i]);
  }
}

void StepByMean(const float* sum, const float* square, size_t n, AdamStep step,
                float* weight, float* mean, Stream) {
  for (size_t i = 0; i < n; ++i) {
    mean[i] = step.rescale * sum[i];
    const float below = std::sqrt(square[i]) / step.root + step.epsilon;
    weight[i] = step.keep * weight[i] - step.step_size * (mean[i] / below);
  }
}

}  // namespace telegrad::kernels::reference
