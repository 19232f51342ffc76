#include "kernels/cuda/launch.h"
#include "kernels/cuda/normal_adam.h"

namespace telegrad::kernels::cuda {
namespace {

constexpr size_t kEach = kNormalBlock / kWarp;  // elements of a thread

// The mean of a warp's block.
__device__ inline float MeanOf(const float (&square)[kEach], size_t n) {
  float sum = 0;
#pragma unroll
  for (size_t j = 0; j < kEach; ++j) sum += square[j];
#pragma unroll
  for (unsigned half = kWarp / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, half);
  }
  return sum / static_cast<float>(n);
}

__device__ inline float SizeOf(float square, float mean, float floor) {
  return mean >= kLeastNormalMean ? sqrtf((square + floor * mean) / mean)
                                  : 1.0f;
}

// This thread's elements of the block at `begin`, of an array of n; 0 past it.
__device__ inline void LoadBlock(const float* from, size_t begin, size_t n,
                                 float (&to)[kEach]) {
#pragma unroll
  for (size_t j = 0; j < kEach; ++j) {
    const size_t i = begin + kWarp * j + threadIdx.x % kWarp;
    to[j] = i < n ? from[i] : 0.0f;
  }
}

// work(i, square[i], s[i]) of every element, a block for each warp.
template <typename Work>
__device__ inline void ForEach(const float* square, size_t n, float floor,
                               Work work) {
  const size_t stride = NumThreads() / kWarp * kNormalBlock;
  for (size_t begin = GlobalThread() / kWarp * kNormalBlock; begin < n;
       begin += stride) {
    float v[kEach];
    LoadBlock(square, begin, n, v);
    const size_t left = n - begin;
    const float block = MeanOf(v, left < kNormalBlock ? left : kNormalBlock);
#pragma unroll
    for (size_t j = 0; j < kEach; ++j) {
      const size_t i = begin + kWarp * j + threadIdx.x % kWarp;
      if (i < n) work(i, v[j], SizeOf(v[j], block, floor));
    }
  }
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    ToNormalKernel(const float* __restrict__ square, size_t n,
                   NormalStep normal, float* __restrict__ grad) {
  ForEach(square, n, normal.floor,
          [=](size_t i, float, float size) { grad[i] = grad[i] / size; });
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    StepByNormalKernel(const float* __restrict__ sum, size_t n, AdamStep step,
                       NormalStep normal, float* __restrict__ weight,
                       float* __restrict__ mean, float* __restrict__ square) {
  ForEach(square, n, normal.floor, [=](size_t i, float v, float size) {
    const float w = step.keep * weight[i];
    const float g = step.rescale * (size * sum[i]) + step.weight_decay * w;
    const float m = step.beta1 * mean[i] + step.rest1 * g;
    const float next = step.beta2 * v + step.rest2 * (g * g);
    const float ahead = normal.mean_rate * m + normal.grad_rate * g;
    const float below = sqrtf(next) / step.root + step.epsilon;
    mean[i] = m;
    square[i] = next;
    weight[i] = w - ahead / below;
  });
}

unsigned GridOf(size_t n) {
  return GridFor((n + kNormalBlock - 1) / kNormalBlock * kWarp);
}

}  // namespace

void ToNormal(const float* square, size_t n, NormalStep normal, float* grad,
              Stream stream) {
  if (n == 0) return;
  ToNormalKernel<<<GridOf(n), kThreads, 0, StreamOf(stream)>>>(square, n,
                                                               normal, grad);
}

void StepByNormal(const float* sum, size_t n, AdamStep step, NormalStep normal,
                  float* weight, float* mean, float* square, Stream stream) {
  if (n == 0) return;
  StepByNormalKernel<<<GridOf(n), kThreads, 0, StreamOf(stream)>>>(
      sum, n, step, normal, weight, mean, square);
}

}  // namespace telegrad::kernels::cuda
