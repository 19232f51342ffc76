#include "kernels/cuda/cuda_kernels.h"
#include "kernels/sparse.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {

using kernels::NonFinite;

// x is uniform in [-1/4, 1/4]: elements of 1/8 on average reach 6.25 once in
// 50 steps, 2 % a step.
void MeasureSparse(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  auto* indices = Allocate<uint32_t>(n + kernels::kSurvivorSlack);
  auto* values = Allocate<float>(n + kernels::kSurvivorSlack);
  auto* count = Allocate<uint64_t>(1);
  auto* scratch = Allocate<uint8_t>(kernels::SparseScratchBytes(n));
  const kernels::SparseKernels sparse = kernels::cuda::Sparse();
  const auto clear = [&] {
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    Require(cudaMemset(a.z, 0, 4 * n), "cudaMemset");
  };
  clear();
  rows.push_back(Time("threshold_encode", 12, [&] {
    sparse.threshold_encode(a.x, a.y, nullptr, n, 6.25f, NonFinite::kZero,
                            indices, count, a.stats, scratch, Stream{});
  }));
  clear();
  rows.push_back(Time("large_values 0 %", 12, [&] {
    sparse.large_values(a.x, a.y, n, nullptr, NonFinite::kZero, indices, values,
                        count, a.stats, scratch, Stream{});
  }));
  clear();
  rows.push_back(Time("momentum_large_values 0 %", 20, [&] {
    sparse.momentum_large_values(a.x, {0.9f, nullptr}, a.z, a.y, n, nullptr,
                                 NonFinite::kZero, indices, values, count,
                                 a.stats, scratch, Stream{});
  }));
  cudaFree(indices);
  cudaFree(values);
  cudaFree(count);
  cudaFree(scratch);
}

}  // namespace telegrad::gpu_check
