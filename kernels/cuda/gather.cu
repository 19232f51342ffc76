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

}  // namespace telegrad::kernels::cuda
