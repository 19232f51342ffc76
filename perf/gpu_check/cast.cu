#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cast.h"
#include "kernels/cuda/cuda_kernels.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {

using kernels::CastFormatKernels;
using kernels::CastKernels;
using kernels::NonFinite;

void MeasureCast(Arrays& a, std::vector<Row>& rows) {
  const CastKernels cast = kernels::cuda::Cast();
  const size_t n = num_elements;
  auto* const codes = reinterpret_cast<uint8_t*>(a.z);
  for (const bool is_half : {true, false}) {
    const CastFormatKernels& format = is_half ? cast.fp16 : cast.bf16;
    const std::string name = is_half ? "fp16" : "bf16";
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    rows.push_back(Time(name + "_encode", 14, [&] {
      format.encode(a.x, a.y, n, NonFinite::kZero, codes, a.stats, Stream{});
    }));
    rows.push_back(Time(name + "_encode no residual", 6, [&] {
      format.encode(a.x, nullptr, n, NonFinite::kZero, codes, a.stats,
                    Stream{});
    }));
    rows.push_back(Time(name + "_decode", 6,
                        [&] { format.decode(codes, n, a.y, Stream{}); }));
    rows.push_back(Time(name + "_decode_add", 10,
                        [&] { format.decode_add(codes, n, a.y, Stream{}); }));
  }
}

}  // namespace telegrad::gpu_check
