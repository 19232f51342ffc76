#include "kernels/block_top.h"
#include "kernels/cuda/cuda_kernels.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {

using kernels::BlockTopKernels;
using kernels::NonFinite;
using kernels::TopRule;

// 64 of 4096 elements: values and places come and go twice.
void MeasureBlockTop(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const TopRule rule;
  const BlockTopKernels gpu = kernels::cuda::BlockTop();
  auto* const scratch =
      Allocate<uint8_t>(kernels::TopScratchBytes(n, rule.keep));
  rows.push_back(Time("block_top_encode", 12.3, [&] {
    gpu.encode(a.x, a.y, n, rule, NonFinite::kZero, a.packed, a.stats, scratch,
               Stream{});
  }));
  rows.push_back(Time("block_top_decode", 4.53, [&] {
    gpu.decode(a.packed, n, rule.keep, a.z, Stream{});
  }));
  rows.push_back(Time("block_top_decode_add", 1.03, [&] {
    gpu.decode_add(a.packed, n, rule.keep, a.z, Stream{});
  }));
  cudaFree(scratch);
}

}  // namespace telegrad::gpu_check
