#include "kernels/cuda/cuda_kernels.h"
#include "perf/gpu_check/families.h"

// Optimizers' steps.
namespace telegrad::gpu_check {

void MeasureOptimizer(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const kernels::OptimizerKernels gpu = kernels::cuda::Optimizer();
  const kernels::SgdParameters gentle{1e-3f, 0.9f, 0.0f, 1.0f};
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  Require(cudaMemset(a.z, 0, 4 * n), "cudaMemset");
  rows.push_back(Time("nesterov", 20, [&] {
    gpu.nesterov(a.x, n, gentle, a.y, a.z, Stream{});
  }));
  float* const square = Allocate<float>(n);
  rows.push_back(Time("adam", 28, [&] {
    gpu.adam(a.x, n, kernels::AdamStep{}, a.y, a.z, square, Stream{});
  }));
  rows.push_back(Time("square", 20, [&] {
    gpu.square(a.x, n, kernels::SquareStep{}, a.y, square, Stream{});
  }));
  cudaFree(square);
}

}  // namespace telegrad::gpu_check
