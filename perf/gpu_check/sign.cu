#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/sign.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {

using kernels::NonFinite;
using kernels::SignKernels;

void MeasureSign(Arrays& a, std::vector<Row>& rows) {
  const SignKernels sign = kernels::cuda::Sign();
  const size_t n = num_elements;
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  rows.push_back(Time("1bit_encode", 12.125, [&] {
    sign.one_bit_encode(a.x, a.y, n, 0, 1, NonFinite::kZero, a.packed, a.stats,
                        Stream{});
  }));
  rows.push_back(Time("1bit_decode", 4.125, [&] {
    sign.one_bit_decode(a.packed, n, a.y, Stream{});
  }));
  rows.push_back(Time("1bit_decode_add", 8.125, [&] {
    sign.one_bit_decode_add(a.packed, n, a.y, Stream{});
  }));
  for (const uint32_t w : {2u, 8u}) {
    const double sum = kernels::SignCountPlanes(w) / 8.0;
    const std::string suffix = " W=" + std::to_string(w);
    rows.push_back(Time("1bit_count_pack" + suffix, w / 8.0 + sum, [&] {
      sign.count_pack(a.frames.data(), w, n, a.packed, Stream{});
    }));
    rows.push_back(Time("1bit_count_decode" + suffix, sum + 4, [&] {
      sign.count_decode(a.packed, w, n, a.y, Stream{});
    }));
  }
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  const double bytes = 0.125 + 4.0 / 2048;
  rows.push_back(Time("onebit_encode", 12 + bytes, [&] {
    sign.block_encode(a.x, a.y, n, 2048, NonFinite::kZero, a.packed, a.stats,
                      Stream{});
  }));
  rows.push_back(Time("onebit_decode", 4 + bytes, [&] {
    sign.block_decode(a.packed, n, 2048, a.y, Stream{});
  }));
  rows.push_back(Time("onebit_decode_add", 8 + bytes, [&] {
    sign.block_decode_add(a.packed, n, 2048, a.y, Stream{});
  }));
}

}  // namespace telegrad::gpu_check
