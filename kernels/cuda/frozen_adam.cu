#include "kernels/cuda/frozen_adam.h"
#include "kernels/cuda/launch.h"

namespace telegrad::kernels::cuda {
namespace {

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    ToMeanKernel(const float* __restrict__ mean,
                 const float* __restrict__ weight, size_t n, AdamStep step,
                 float* __restrict__ grad) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float m[4];
    float w[4];
    float g[4];
    Load4<kVector>(mean, i, n, m);
    Load4<kVector>(weight, i, n, w);
    Load4<kVector>(grad, i, n, g);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      g[j] = step.beta1 * m[j] + step.rest1 * (g[j] + step.weight_decay * w[j]);
    }
    Store4<kVector>(g, i, n, grad);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    StepByMeanKernel(const float* __restrict__ sum,
                     const float* __restrict__ square, size_t n, AdamStep step,
                     float* __restrict__ weight, float* __restrict__ mean) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float m[4];
    float v[4];
    float w[4];
    Load4<kVector>(sum, i, n, m);
    Load4<kVector>(square, i, n, v);
    Load4<kVector>(weight, i, n, w);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      m[j] = step.rescale * m[j];
      const float below = sqrtf(v[j]) / step.root + step.epsilon;
      w[j] = step.keep * w[j] - step.step_size * (m[j] / below);
    }
    Store4<kVector>(m, i, n, mean);
    Store4<kVector>(w, i, n, weight);
  }
}

}  // namespace

void ToMean(const float* mean, const float* weight, size_t n, AdamStep step,
            float* grad, Stream stream) {
  if (n == 0) return;
  const bool is_vector =
      IsAligned(mean, 16) && IsAligned(weight, 16) && IsAligned(grad, 16);
  auto* const kernel = is_vector ? ToMeanKernel<true> : ToMeanKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      mean, weight, n, step, grad);
}

void StepByMean(const float* sum, const float* square, size_t n, AdamStep step,
                float* weight, float* mean, Stream stream) {
  if (n == 0) return;
  const bool is_vector = IsAligned(sum, 16) && IsAligned(square, 16) &&
                         IsAligned(weight, 16) && IsAligned(mean, 16);
  auto* const kernel =
      is_vector ? StepByMeanKernel<true> : StepByMeanKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      sum, square, n, step, weight, mean);
}

}  // namespace telegrad::kernels::cuda
