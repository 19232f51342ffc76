#include "kernels/cuda/gather.h"
#include "kernels/cuda/launch.h"

namespace telegrad::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SampleKernel(const float* __restrict__ x, size_t count, size_t stride,
                 float* __restrict__ out) {
  for (size_t i = GlobalThread(); i < count; i += NumThreads()) {
    out[i] = x[i * stride];
  }
}

// So many blocks share a span.
constexpr unsigned kParts = 8;

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    GatherManyKernel(const GatherSpan* __restrict__ spans) {
  const GatherSpan span = spans[blockIdx.x / kParts];
  const size_t first = blockIdx.x % kParts * kThreads + threadIdx.x;
  for (size_t i = first; i < span.count; i += kParts * kThreads) {
    span.to[i] = span.from[i * span.stride];
  }
}

}  // namespace

void Clear(size_t size, void* to, Stream stream) {
  if (size > 0) cudaMemsetAsync(to, 0, size, StreamOf(stream));
}

void Sample(const float* x, size_t n, size_t stride, float* out,
            Stream stream) {
  if (n == 0) return;
  const size_t count = (n + stride - 1) / stride;
  SampleKernel<<<GridFor(count), kThreads, 0, StreamOf(stream)>>>(x, count,
                                                                  stride, out);
}

void GatherMany(const GatherSpan* spans, uint32_t num_spans, Stream stream) {
  if (num_spans == 0) return;
  GatherManyKernel<<<kParts * num_spans, kThreads, 0, StreamOf(stream)>>>(
      spans);
}

}  // namespace telegrad::kernels::cuda
