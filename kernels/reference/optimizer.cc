#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/reference.h"

namespace telegrad::kernels::reference {
namespace {

void Nesterov(const float* grad, size_t n, SgdParameters params, float* weight,
              float* momentum, Stream) {
  for (size_t i = 0; i < n; ++i) {
    const float g = params.rescale * grad[i] + params.weight_decay * weight[i];
    const float d = params.learning_rate * g;
    momentum[i] = params.momentum_rate * momentum[i] - d;
    weight[i] = weight[i] + (params.momentum_rate * momentum[i] - d);
  }
}

void Adam(const float* grad, size_t n, AdamStep step, float* weight,
          float* mean, float* square, Stream) {
  for (size_t i = 0; i < n; ++i) {
    const float w = step.keep * weight[i];
    const float g = step.rescale * grad[i] + step.weight_decay * w;
    mean[i] = step.beta1 * mean[i] + step.rest1 * g;
    square[i] = step.beta2 * square[i] + step.rest2 * (g * g);
    const float below = std::sqrt(square[i]) / step.root + step.epsilon;
    weight[i] = w - step.step_size * (mean[i] / below);
  }
}

void Square(const float* grad, size_t n, SquareStep step, float* weight,
            float* square, Stream) {
  for (size_t i = 0; i < n; ++i) {
    const float g = step.rescale * grad[i] + step.weight_decay * weight[i];
    square[i] = step.keep * square[i] + step.rest * (g * g);
    weight[i] = weight[i] - step.learning_rate *
                                (g / (std::sqrt(square[i]) + step.epsilon));
  }
}

void PushMomentum(const float* grad, size_t n, float rate, bool leads,
                  float* momentum, float* out, Stream) {
  for (size_t i = 0; i < n; ++i) {
    const float kept = rate * momentum[i];
    const float m = kept + grad[i];
    out[i] = leads ? grad[i] + rate * m : m;
    momentum[i] = std::isfinite(out[i]) ? m : kept;
  }
}

}  // namespace

OptimizerKernels Optimizer() { return {Nesterov, Adam, Square, PushMomentum}; }

}  // namespace telegrad::kernels::reference
