#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/optimizer.h"

namespace telegrad::kernels::cuda {
namespace {

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    NesterovKernel(const float* __restrict__ grad, size_t n,
                   SgdParameters params, float* __restrict__ weight,
                   float* __restrict__ momentum) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float g[4];
    float w[4];
    float m[4];
    Load4<kVector>(grad, i, n, g);
    Load4<kVector>(weight, i, n, w);
    Load4<kVector>(momentum, i, n, m);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float d = params.learning_rate *
                      (params.rescale * g[j] + params.weight_decay * w[j]);
      m[j] = params.momentum_rate * m[j] - d;
      w[j] = w[j] + (params.momentum_rate * m[j] - d);
    }
    Store4<kVector>(m, i, n, momentum);
    Store4<kVector>(w, i, n, weight);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    AdamKernel(const float* __restrict__ grad, size_t n, AdamStep step,
               float* __restrict__ weight, float* __restrict__ mean,
               float* __restrict__ square) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float x[4];
    float w[4];
    float m[4];
    float v[4];
    Load4<kVector>(grad, i, n, x);
    Load4<kVector>(weight, i, n, w);
    Load4<kVector>(mean, i, n, m);
    Load4<kVector>(square, i, n, v);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      w[j] = step.keep * w[j];
      const float g = step.rescale * x[j] + step.weight_decay * w[j];
      m[j] = step.beta1 * m[j] + step.rest1 * g;
      v[j] = step.beta2 * v[j] + step.rest2 * (g * g);
      const float below = sqrtf(v[j]) / step.root + step.epsilon;
      w[j] = w[j] - step.step_size * (m[j] / below);
    }
    Store4<kVector>(m, i, n, mean);
    Store4<kVector>(v, i, n, square);
    Store4<kVector>(w, i, n, weight);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SquareKernel(const float* __restrict__ grad, size_t n, SquareStep step,
                 float* __restrict__ weight, float* __restrict__ square) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float x[4];
    float w[4];
    float v[4];
    Load4<kVector>(grad, i, n, x);
    Load4<kVector>(weight, i, n, w);
    Load4<kVector>(square, i, n, v);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float g = step.rescale * x[j] + step.weight_decay * w[j];
      v[j] = step.keep * v[j] + step.rest * (g * g);
      w[j] = w[j] - step.learning_rate * (g / (sqrtf(v[j]) + step.epsilon));
    }
    Store4<kVector>(v, i, n, square);
    Store4<kVector>(w, i, n, weight);
  }
}

template <bool kVector>
__device__ inline void PushOf(const MomentumSpan& span, size_t first,
                              size_t stride) {
  const size_t n = span.num_elems;
  for (size_t i = 4 * first; i < n; i += 4 * stride) {
    float g[4];
    float m[4];
    Load4<kVector>(span.grad, i, n, g);
    Load4<kVector>(span.momentum, i, n, m);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float kept = span.rate * m[j];
      const float next = kept + g[j];
      g[j] = span.leads ? g[j] + span.rate * next : next;
      m[j] = IsFinite(g[j]) ? next : kept;
    }
    Store4<kVector>(m, i, n, span.momentum);
    Store4<kVector>(g, i, n, span.out);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    PushMomentumKernel(const __grid_constant__ MomentumSpan span) {
  PushOf<kVector>(span, GlobalThread(), NumThreads());
}

// So many blocks share an array.
template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    PushMomentumManyKernel(const MomentumSpan* __restrict__ spans,
                           unsigned num_blocks) {
  const MomentumSpan span = spans[blockIdx.x / num_blocks];
  PushOf<kVector>(span, blockIdx.x % num_blocks * kThreads + threadIdx.x,
                  num_blocks * kThreads);
}

void Nesterov(const float* grad, size_t n, SgdParameters params, float* weight,
              float* momentum, Stream stream) {
  if (n == 0) return;
  const bool is_vector =
      IsAligned(grad, 16) && IsAligned(weight, 16) && IsAligned(momentum, 16);
  auto* const kernel = is_vector ? NesterovKernel<true> : NesterovKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      grad, n, params, weight, momentum);
}

void Adam(const float* grad, size_t n, AdamStep step, float* weight,
          float* mean, float* square, Stream stream) {
  if (n == 0) return;
  const bool is_vector = IsAligned(grad, 16) && IsAligned(weight, 16) &&
                         IsAligned(mean, 16) && IsAligned(square, 16);
  auto* const kernel = is_vector ? AdamKernel<true> : AdamKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      grad, n, step, weight, mean, square);
}

void Square(const float* grad, size_t n, SquareStep step, float* weight,
            float* square, Stream stream) {
  if (n == 0) return;
  const bool is_vector =
      IsAligned(grad, 16) && IsAligned(weight, 16) && IsAligned(square, 16);
  auto* const kernel = is_vector ? SquareKernel<true> : SquareKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      grad, n, step, weight, square);
}

void PushMomentum(const float* grad, size_t n, float rate, bool leads,
                  float* momentum, float* out, Stream stream) {
  if (n == 0) return;
  const bool is_vector =
      IsAligned(grad, 16) && IsAligned(momentum, 16) && IsAligned(out, 16);
  auto* const kernel =
      is_vector ? PushMomentumKernel<true> : PushMomentumKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      MomentumSpan{grad, momentum, out, n, rate, leads});
}

}  // namespace

void PushMomentumMany(const MomentumSpan* spans, uint32_t num_spans,
                      uint64_t most_elems, bool is_aligned, Stream stream) {
  if (num_spans == 0 || most_elems == 0) return;
  const unsigned num_blocks = GridFor((most_elems + 3) / 4);
  auto* const kernel =
      is_aligned ? PushMomentumManyKernel<true> : PushMomentumManyKernel<false>;
  kernel<<<num_blocks * num_spans, kThreads, 0, StreamOf(stream)>>>(spans,
                                                                    num_blocks);
}

OptimizerKernels Optimizer() { return {Nesterov, Adam, Square, PushMomentum}; }

}  // namespace telegrad::kernels::cuda
