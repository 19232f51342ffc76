#include "kernels/cuda/cuda_kernels.h"
#include "kernels/drawn.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::DrawnKernels;

constexpr uint64_t kSeed = 0x123456789ABCDEF0;

}  // namespace

// 1 % of the elements, each of a sector of 32 bytes.
void MeasureDrawn(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const size_t k = n / 100;
  const DrawnKernels gpu = kernels::cuda::Drawn();
  rows.push_back(Time("drawn_take 1 %", 0.68, [&] {
    gpu.take(a.y, nullptr, n, k, kSeed, a.packed, a.stats, Stream{});
  }));
  rows.push_back(Time("drawn_decode 1 %", 4.36,
                      [&] { gpu.decode(a.packed, n, k, a.y, Stream{}); }));
  rows.push_back(Time("drawn_decode_add 1 %", 0.68,
                      [&] { gpu.decode_add(a.packed, n, k, a.y, Stream{}); }));
}

}  // namespace telegrad::gpu_check
