#include <cmath>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/frozen_adam.h"
#include "kernels/reference.h"
#include "kernels/reference/frozen_adam.h"
#include "perf/gpu_check/families.h"

// Optimizers' steps.
namespace telegrad::gpu_check {
namespace {

kernels::AdamStep AdamCase() {
  kernels::AdamStep step;
  step.rescale = 0.3f;
  step.weight_decay = 0.01f;
  step.keep = 0.999f;
  step.root = 0.03f;
  return step;
}

void Check(size_t n, size_t skew, Verdict& verdict) {
  const kernels::SgdParameters params{0.1f, 0.9f, 1e-4f, 0.3f};
  const auto grad = Floats(n, n + 1);
  auto weight = Floats(n, n + 2);
  auto first = Floats(n, n + 3);
  auto second = Floats(n, n + 4);
  for (float& x : second) x = std::fabs(x);
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> w(weight, skew);
  DeviceArray<float> a(first, skew);
  DeviceArray<float> b(second, skew);
  const kernels::OptimizerKernels gpu = kernels::cuda::Optimizer();
  const kernels::OptimizerKernels cpu = kernels::reference::Optimizer();
  gpu.nesterov(g.get(), n, params, w.get(), a.get(), Stream{});
  cpu.nesterov(grad.data(), n, params, weight.data(), first.data(), Stream{});
  verdict.Compare("nesterov weight", n, 1, w.values(), weight);
  verdict.Compare("nesterov momentum", n, 1, a.values(), first);
  gpu.adam(g.get(), n, AdamCase(), w.get(), a.get(), b.get(), Stream{});
  cpu.adam(grad.data(), n, AdamCase(), weight.data(), first.data(),
           second.data(), Stream{});
  verdict.Compare("adam weight", n, 1, w.values(), weight);
  verdict.Compare("adam mean", n, 1, a.values(), first);
  verdict.Compare("adam square", n, 1, b.values(), second);
  const kernels::SquareStep step{0.3f, 0.01f, 0.1f, 0.99f, 0.01f, 1e-8f};
  gpu.square(g.get(), n, step, w.get(), b.get(), Stream{});
  cpu.square(grad.data(), n, step, weight.data(), second.data(), Stream{});
  verdict.Compare("square weight", n, 1, w.values(), weight);
  verdict.Compare("square squares", n, 1, b.values(), second);
  kernels::cuda::ToMean(g.get(), w.get(), n, AdamCase(), a.get(), Stream{});
  kernels::reference::ToMean(grad.data(), weight.data(), n, AdamCase(),
                             first.data(), Stream{});
  verdict.Compare("to_mean mean", n, 1, a.values(), first);
  kernels::cuda::StepByMean(g.get(), b.get(), n, AdamCase(), w.get(), a.get(),
                            Stream{});
  kernels::reference::StepByMean(grad.data(), second.data(), n, AdamCase(),
                                 weight.data(), first.data(), Stream{});
  verdict.Compare("step_by_mean weight", n, 1, w.values(), weight);
  verdict.Compare("step_by_mean mean", n, 1, a.values(), first);
}

}  // namespace

void VerifyOptimizer(Verdict& verdict) {
  for (const size_t n : {0, 1, 3, 4, 5, 255, 1023, 1025, 4097, 100003}) {
    for (const size_t skew : {0, 1}) Check(n, skew, verdict);
  }
}

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
