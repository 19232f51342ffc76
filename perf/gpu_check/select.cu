#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "kernels/select.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::Candidates;
using kernels::EncodeStats;
using kernels::HowMany;
using kernels::NonFinite;
using kernels::SelectKernels;
using kernels::Taken;

void CheckThreshold(size_t n, size_t wanted, Verdict& verdict) {
  const auto grad = Floats(n, n + 1);
  const auto residual = Floats(n, n + 2);
  const auto momentum = Floats(n, n + 3);
  std::vector<float> factors = {0.75f, -1};
  DeviceArray<float> g(grad);
  DeviceArray<float> r(residual);
  DeviceArray<float> u(momentum);
  DeviceArray<float> f(factors);
  DeviceArray<uint64_t> scratch(
      std::vector<uint64_t>(kernels::SelectScratchBytes(n) / 8 + 1, 0x55));
  const float clip = 0.5f;
  kernels::cuda::Select().clip_scale(g.get(), n, clip, f.get(), scratch.get(),
                                     Stream{});
  kernels::reference::Select().clip_scale(grad.data(), n, clip, factors.data(),
                                          nullptr, Stream{});
  kernels::cuda::Select().sample_threshold(
      {g.get(), r.get(), u.get(), {0.9f, f.get()}}, n, wanted, true,
      f.get() + 1, scratch.get(), Stream{});
  kernels::reference::Select().sample_threshold(
      {grad.data(), residual.data(), momentum.data(), {0.9f, factors.data()}},
      n, wanted, true, factors.data() + 1, nullptr, Stream{});
  verdict.Compare("select scale and threshold", n, 1, f.values(), factors);
}

std::vector<uint32_t> ThoseThatReach(float threshold,
                                     const std::vector<float>& values) {
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < values.size(); ++i) {
    if (kernels::SendableBits(values[i]) < kernels::SendableBits(threshold)) {
      continue;
    }
    indices.push_back(static_cast<uint32_t>(i));
  }
  return indices;
}

void CheckTake(size_t n, HowMany how_many, float threshold, Verdict& verdict) {
  auto residual = Floats(n, n + 2);
  std::vector<float> momentum(n, 3);
  const std::vector<uint32_t> indices = ThoseThatReach(threshold, residual);
  std::vector<float> values;
  for (const uint32_t index : indices) values.push_back(residual[index]);
  std::vector<uint64_t> counts = {indices.size(), 99};
  std::vector<uint32_t> kept(how_many.most);
  std::vector<float> kept_values(how_many.most);
  EncodeStats stats;
  DeviceArray<float> r(residual);
  DeviceArray<float> u(momentum);
  DeviceArray<uint32_t> i(indices);
  DeviceArray<float> v(values);
  DeviceArray<uint64_t> c(counts);
  DeviceArray<uint32_t> k(kept);
  DeviceArray<float> w(kept_values);
  DeviceArray<EncodeStats> s({stats});
  DeviceArray<uint64_t> scratch(
      std::vector<uint64_t>(kernels::SelectScratchBytes(n) / 8 + 1, 0x55));
  kernels::cuda::Select().take_largest(
      how_many, Candidates{i.get(), v.get(), c.get(), r.get(), u.get(), n},
      Taken{k.get(), w.get(), c.get() + 1, s.get()}, scratch.get(), Stream{});
  kernels::reference::Select().take_largest(
      how_many,
      Candidates{indices.data(), values.data(), counts.data(), residual.data(),
                 momentum.data(), n},
      Taken{kept.data(), kept_values.data(), counts.data() + 1, &stats},
      nullptr, Stream{});
  kept.resize(counts[1]);
  kept_values.resize(counts[1]);
  const auto frames = static_cast<uint32_t>(how_many.k);
  verdict.Compare("select counts", n, frames, c.values(), counts);
  verdict.Compare("select indices", n, frames, k.values(), kept);
  verdict.Compare("select values", n, frames, w.values(), kept_values);
  verdict.Compare("select residual", n, frames, r.values(), residual);
  verdict.Compare("select momentum", n, frames, u.values(), momentum);
  verdict.CompareStats("select stats", n, frames, s.values()[0], stats);
}

HowMany Exactly(size_t k) {
  HowMany how_many;
  how_many.k = how_many.fewest = how_many.most = k;
  return how_many;
}

}  // namespace

void VerifySelect(Verdict& verdict) {
  for (const size_t n : {1, 5, 1023, 1024, 1025, 8193, 100003}) {
    for (const size_t k : {size_t{1}, n / 10 + 1, n}) {
      CheckThreshold(n, k, verdict);
      for (const float threshold : {1e-30f, 0.9f, 1e38f}) {
        CheckTake(n, Exactly(k), threshold, verdict);
      }
    }
  }
  CheckThreshold(3000017, 30000, verdict);
  CheckTake(3000017, Exactly(300000), 1.2f, verdict);
  CheckTake(3000017, Exactly(300000), 1e38f, verdict);
}

// The whole of topk at 1 %, with candidates of its own threshold: what it adds
// to large_values are the sample and a list of some more than 1 %.
void MeasureSelect(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const SelectKernels gpu = kernels::cuda::Select();
  auto* indices = Allocate<uint32_t>(2 * n + kernels::kSurvivorSlack);
  auto* values = Allocate<float>(n + kernels::kSurvivorSlack);
  auto* counts = Allocate<uint64_t>(2);
  auto* factors = Allocate<float>(2);
  auto* scratch = Allocate<uint64_t>(kernels::SelectScratchBytes(n) / 8 + 1);
  rows.push_back(Time("select_clip_scale", 4, [&] {
    gpu.clip_scale(a.x, n, 1.0, factors + 1, scratch, Stream{});
  }));
  const size_t k = n / 100;
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  rows.push_back(Time("topk 1 %", 12.16, [&] {
    gpu.sample_threshold({a.x, a.y, nullptr, {}}, n, k, true, factors, scratch,
                         Stream{});
    kernels::cuda::Sparse().large_values(a.x, a.y, n, factors, NonFinite::kZero,
                                         indices, values, counts, a.stats,
                                         scratch, Stream{});
    gpu.take_largest(
        Exactly(k), Candidates{indices, values, counts, a.y, nullptr, n},
        Taken{indices + n + kernels::kSurvivorSlack, a.z, counts + 1, a.stats},
        scratch, Stream{});
  }));
  rows.push_back(Time("select of all elements", 20, [&] {
    cudaMemsetAsync(counts, 0, sizeof(*counts), nullptr);
    gpu.take_largest(
        Exactly(k), Candidates{indices, values, counts, a.y, nullptr, n},
        Taken{indices + n + kernels::kSurvivorSlack, a.z, counts + 1, a.stats},
        scratch, Stream{});
  }));
  for (void* memory : {static_cast<void*>(indices), static_cast<void*>(values),
                       static_cast<void*>(counts), static_cast<void*>(factors),
                       static_cast<void*>(scratch)}) {
    cudaFree(memory);
  }
}

}  // namespace telegrad::gpu_check
