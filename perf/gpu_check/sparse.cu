#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "kernels/sparse.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::EncodeStats;
using kernels::NonFinite;

enum class Rule { kThreshold, kLarge, kMomentum };

// Arrays of one kind of memory, as the kernels take them.
struct Arguments {
  const float* grad;
  float* momentum;
  float* residual;
  uint32_t* indices;
  float* values;
  uint64_t* count;
  EncodeStats* stats;
  void* scratch;
  const float* threshold;  // of those that take it from memory
  const float* scale;
};

void Apply(const kernels::SparseKernels& sparse, Rule rule, const Arguments& a,
           size_t n, float threshold, NonFinite mode) {
  if (rule == Rule::kThreshold) {
    sparse.threshold_encode(a.grad, a.residual, n, threshold, mode, a.indices,
                            a.count, a.stats, a.scratch, Stream{});
  } else if (rule == Rule::kLarge) {
    sparse.large_values(a.grad, a.residual, n, a.threshold, mode, a.indices,
                        a.values, a.count, a.stats, a.scratch, Stream{});
  } else {
    sparse.momentum_large_values(
        a.grad, {0.9f, a.scale}, a.momentum, a.residual, n, a.threshold, mode,
        a.indices, a.values, a.count, a.stats, a.scratch, Stream{});
  }
}

void Check(Rule rule, size_t n, size_t skew, float threshold, NonFinite mode,
           Verdict& verdict) {
  const auto grad = Floats(n, n + 1);
  auto residual = Floats(n, n + 2);
  auto momentum = Floats(n, n + 3);
  std::vector<uint32_t> indices(n + kernels::kSurvivorSlack, 7);
  std::vector<float> values(n + kernels::kSurvivorSlack, 7);
  std::vector<uint64_t> count = {99};
  EncodeStats stats = {3, 0, 100};
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  DeviceArray<float> u(momentum, skew);
  DeviceArray<uint32_t> i(indices, skew);
  DeviceArray<float> v(values, skew);
  DeviceArray<uint64_t> c(count);
  DeviceArray<EncodeStats> s({stats});
  DeviceArray<uint64_t> scratch(
      std::vector<uint64_t>(kernels::SparseScratchBytes(n) / 8, 0x55));
  const std::vector<float> factors = {threshold, 0.75f};
  DeviceArray<float> f(factors);
  Apply(kernels::cuda::Sparse(), rule,
        {g.get(), u.get(), r.get(), i.get(), v.get(), c.get(), s.get(),
         scratch.get(), f.get(), f.get() + 1},
        n, threshold, mode);
  Apply(
      kernels::reference::Sparse(), rule,
      {grad.data(), momentum.data(), residual.data(), indices.data(),
       values.data(), count.data(), &stats, nullptr, &factors[0], &factors[1]},
      n, threshold, mode);
  const auto frames = static_cast<uint32_t>(rule);
  verdict.Compare("survivors count", n, frames, c.values(), count);
  indices.resize(count[0]);
  values.resize(rule == Rule::kThreshold ? 0 : count[0]);
  verdict.Compare("survivors indices", n, frames, i.values(), indices);
  verdict.Compare("survivors values", n, frames, v.values(), values);
  verdict.Compare("survivors residual", n, frames, r.values(), residual);
  verdict.Compare("survivors momentum", n, frames, u.values(), momentum);
  const EncodeStats got = s.values()[0];
  verdict.CompareStats("survivors stats", n, frames, got, stats);
}

constexpr Rule kRules[] = {Rule::kThreshold, Rule::kLarge, Rule::kMomentum};

}  // namespace

void VerifySparse(Verdict& verdict) {
  for (const Rule rule : kRules) {
    for (const size_t n : {0, 1, 2, 3, 4, 5, 31, 33, 255, 257, 1023, 1025, 4095,
                           4096, 4097, 8193, 100003, 300007}) {
      for (const size_t skew : {0, 1}) {
        for (const NonFinite mode : {NonFinite::kZero, NonFinite::kPropagate}) {
          Check(rule, n, skew, 0.5f, mode, verdict);
        }
      }
      Check(rule, n, 0, 1e30f, NonFinite::kZero, verdict);
      Check(rule, n, 0, 1e-30f, NonFinite::kZero, verdict);
    }
    Check(rule, 15485863, 0, 1.2f, NonFinite::kZero, verdict);
  }
}

// x is uniform in [-1/4, 1/4]: elements of 1/8 on average reach 6.25 once in
// 50 steps, 2 % a step.
void MeasureSparse(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  auto* indices = Allocate<uint32_t>(n + kernels::kSurvivorSlack);
  auto* values = Allocate<float>(n + kernels::kSurvivorSlack);
  auto* count = Allocate<uint64_t>(1);
  auto* scratch = Allocate<uint8_t>(kernels::SparseScratchBytes(n));
  const Arguments arguments = {a.x,   a.z,     a.y,     indices, values,
                               count, a.stats, scratch, nullptr, nullptr};
  const char* const names[] = {"threshold_encode", "large_values 0 %",
                               "momentum_large_values 0 %"};
  for (const Rule rule : kRules) {
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    Require(cudaMemset(a.z, 0, 4 * n), "cudaMemset");
    rows.push_back(Time(names[static_cast<int>(rule)],
                        rule == Rule::kMomentum ? 20 : 12, [&] {
                          Apply(kernels::cuda::Sparse(), rule, arguments, n,
                                6.25f, NonFinite::kZero);
                        }));
  }
  cudaFree(indices);
  cudaFree(values);
  cudaFree(count);
  cudaFree(scratch);
}

}  // namespace telegrad::gpu_check
