#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/image.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sgd.cuh"
#include "kernels/dense.h"

namespace telegrad::kernels::cuda {
namespace {

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    AddKernel(const float* __restrict__ x, size_t n, float* __restrict__ sum) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float a[4];
    float b[4];
    Load4<kVector>(x, i, n, a);
    Load4<kVector>(sum, i, n, b);
#pragma unroll
    for (int j = 0; j < 4; ++j) b[j] += a[j];
    Store4<kVector>(b, i, n, sum);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    ScaleKernel(float factor, size_t n, float* __restrict__ x) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float a[4];
    Load4<kVector>(x, i, n, a);
#pragma unroll
    for (int j = 0; j < 4; ++j) a[j] *= factor;
    Store4<kVector>(a, i, n, x);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    CountKernel(const float* __restrict__ x, size_t n, EncodeStats* stats) {
  uint64_t num_nonfinite = 0;
  uint64_t first_nonfinite = kNoIndex;
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float a[4];
    Load4<kVector>(x, i, n, a);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (IsFinite(a[j])) continue;
      ++num_nonfinite;
      if (i + j < first_nonfinite) first_nonfinite = i + j;
    }
  }
  AddStats(WideTally{0, num_nonfinite, first_nonfinite}, stats);
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SgdKernel(const float* __restrict__ grad, size_t n, SgdParameters params,
              float* __restrict__ weight, float* __restrict__ momentum) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float g[4];
    Load4<kVector>(grad, i, n, g);
    SgdStep4<kVector>(g, i, n, params, weight, momentum);
  }
}

struct PutValue {
  uint8_t bytes[kMaxPutBytes];
};

__global__ void __launch_bounds__(kWarp)
    PutKernel(const __grid_constant__ PutValue value, unsigned size,
              uint8_t* to) {
  if (threadIdx.x < size) to[threadIdx.x] = value.bytes[threadIdx.x];
}

// By one block: all its threads square the samples, then one thread a lane adds
// them in the order that the contract fixes.
__device__ inline void PowerOf(const void* __restrict__ grad, GradFormat format,
                               const float* __restrict__ residual, size_t n,
                               double* mean_square) {
  __shared__ double squares[kMaxPowerSamples];
  __shared__ double lanes[kPowerLanes];
  const size_t samples = n < kMaxPowerSamples ? n : kMaxPowerSamples;
  for (size_t j = threadIdx.x; j < samples; j += blockDim.x) {
    const size_t i = n <= kMaxPowerSamples ? j : PowerSample(j, n);
    const float v =
        (residual == nullptr ? 0.0f : residual[i]) + GradAt(grad, format, i);
    const double value = IsFinite(v) ? static_cast<double>(v) : 0.0;
    squares[j] = value * value;
  }
  __syncthreads();
  const size_t l = threadIdx.x;
  if (l < kPowerLanes) {
    double sum = 0.0;
    for (size_t j = l; j < samples; j += kPowerLanes) sum += squares[j];
    lanes[l] = sum;
  }
  for (size_t width = kPowerLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (l < width) lanes[l] += lanes[l + width];
  }
  if (l == 0) {
    *mean_square = samples == 0 ? 0.0 : lanes[0] / static_cast<double>(samples);
  }
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    PowerKernel(const float* __restrict__ grad,
                const float* __restrict__ residual, size_t n,
                double* mean_square) {
  PowerOf(grad, GradFormat::kFloat32, residual, n, mean_square);
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    PowerManyKernel(const PowerSpan* __restrict__ spans) {
  const PowerSpan span = spans[blockIdx.x];
  PowerOf(span.grad, span.format, span.residual, span.num_elems,
          span.mean_square);
}

}  // namespace

void AddF32(const float* x, size_t n, float* sum, Stream stream) {
  if (n == 0) return;
  const bool is_vector = IsAligned(x, 16) && IsAligned(sum, 16);
  auto* const kernel = is_vector ? AddKernel<true> : AddKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(x, n, sum);
}

void ScaleF32(float factor, size_t n, float* x, Stream stream) {
  if (n == 0) return;
  auto* const kernel =
      IsAligned(x, 16) ? ScaleKernel<true> : ScaleKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(factor, n, x);
}

void CountNonFinite(const float* x, size_t n, EncodeStats* stats,
                    Stream stream) {
  if (n == 0) return;
  auto* const kernel =
      IsAligned(x, 16) ? CountKernel<true> : CountKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(x, n, stats);
}

void Copy(const void* from, size_t size, void* to, Stream stream) {
  if (from == to) return;
  // Default: either side may be pinned memory.
  cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, StreamOf(stream));
}

void Put(const void* value, size_t size, void* to, Stream stream) {
  if (size == 0) return;
  PutValue copy = {};
  memcpy(copy.bytes, value, size);
  PutKernel<<<1, kWarp, 0, StreamOf(stream)>>>(
      copy, static_cast<unsigned>(size), static_cast<uint8_t*>(to));
}

void SgdMomentum(const float* grad, size_t n, SgdParameters params,
                 float* weight, float* momentum, Stream stream) {
  if (n == 0) return;
  const bool is_vector =
      IsAligned(grad, 16) && IsAligned(weight, 16) && IsAligned(momentum, 16);
  auto* const kernel = is_vector ? SgdKernel<true> : SgdKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      grad, n, params, weight, momentum);
}

cudaError_t TryImage() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, PutKernel);
}

cudaError_t LastKernelError() { return cudaGetLastError(); }

void SampledPowerMany(const PowerSpan* spans, uint32_t num_spans,
                      Stream stream) {
  if (num_spans == 0) return;
  PowerManyKernel<<<num_spans, kThreads, 0, StreamOf(stream)>>>(spans);
}

void SampledPower(const float* grad, const float* residual, size_t n,
                  double* mean_square, Stream stream) {
  PowerKernel<<<1, kThreads, 0, StreamOf(stream)>>>(grad, residual, n,
                                                    mean_square);
}

}  // namespace telegrad::kernels::cuda
