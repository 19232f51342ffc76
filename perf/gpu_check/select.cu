#include "kernels/cuda/cuda_kernels.h"
#include "kernels/select.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::Candidates;
using kernels::HowMany;
using kernels::NonFinite;
using kernels::SelectKernels;
using kernels::Taken;

HowMany Exactly(size_t k) {
  HowMany how_many;
  how_many.k = how_many.fewest = how_many.most = k;
  return how_many;
}

}  // namespace

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
