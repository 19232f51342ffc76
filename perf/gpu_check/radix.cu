#include <string>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/radix.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {

using kernels::NonFinite;

void MeasureRadix(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const kernels::RadixKernels gpu = kernels::cuda::Radix();
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  rows.push_back(Time("radix_encode", 12.2, [&] {
    gpu.encode(a.x, a.y, n, 0.25f, NonFinite::kZero, a.packed, a.stats,
               Stream{});
  }));
  rows.push_back(Time("radix_decode", 4.2, [&] {
    gpu.decode(a.frames[0], n, 0.5f, a.y, Stream{});
  }));
  for (const uint32_t w : {2u, 8u}) {
    const std::string suffix = " W=" + std::to_string(w);
    const double in = 0.2 * w;
    const double sum = static_cast<double>(kernels::RadixSumBytes(n, w)) /
                       static_cast<double>(n);
    rows.push_back(Time("radix_sum_pack" + suffix, in + sum, [&] {
      gpu.sum_pack(a.frames.data(), w, n, a.packed, Stream{});
    }));
    rows.push_back(Time("radix_sum_unpack" + suffix, sum + 4, [&] {
      gpu.packed_sum_decode(a.packed, w, n, 0.5f, a.y, Stream{});
    }));
    rows.push_back(Time("radix_sum_decode" + suffix, in + 4, [&] {
      gpu.sum_decode(a.frames.data(), w, n, 0.5f, a.y, Stream{});
    }));
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    rows.push_back(Time("radix_reencode" + suffix, in + 8.2, [&] {
      gpu.reencode(a.frames.data(), w, n, reinterpret_cast<int32_t*>(a.y), 0,
                   static_cast<int32_t>(w), a.packed, Stream{});
    }));
  }
}

}  // namespace telegrad::gpu_check
