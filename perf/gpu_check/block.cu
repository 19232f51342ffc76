#include <cstdint>
#include <string>
#include <vector>

#include "kernels/block_rules.h"
#include "kernels/cuda/cuda_kernels.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::BlockFormat;
using kernels::NonFinite;

constexpr kernels::DitherLimit kLimit;
constexpr kernels::DrawKey kDraw = {0x123456789ABCDEF0, 5};

std::string NameOf(const char* what, uint32_t bits) {
  return std::string(what) + " " + std::to_string(bits) + " bits";
}

}  // namespace

void MeasureBlock(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const auto gpu = kernels::cuda::Block();
  for (const uint32_t bits : {8u, 4u, 3u, 2u}) {
    const bool odd = kernels::IsOdd(bits);
    const BlockFormat format = {odd ? 256u : 1024u, bits,
                                kernels::SharedLevels(bits), false, odd};
    const double code = bits / 8.0;
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    rows.push_back(Time(NameOf("block_quantize", bits), 12 + code, [&] {
      gpu.quantize(a.x, a.y, n, format, NonFinite::kZero,
                   reinterpret_cast<uint8_t*>(a.z), a.stats, Stream{});
    }));
    rows.push_back(Time(NameOf("shared_quantize", bits), 12 + code, [&] {
      gpu.shared_quantize(a.x, a.y, n, bits, 0.01f, NonFinite::kZero, a.packed,
                          a.stats, Stream{});
    }));
    if (!odd) {
      rows.push_back(Time(NameOf("dither", bits), 4 + code, [&] {
        gpu.dither(a.x, n, format, kLimit, kDraw, NonFinite::kZero,
                   reinterpret_cast<uint8_t*>(a.z), a.stats, Stream{});
      }));
    }
    rows.push_back(Time(NameOf("block_decode", bits), 4 + code, [&] {
      gpu.decode(reinterpret_cast<uint8_t*>(a.z), n, format, a.y, Stream{});
    }));
  }
  const BlockFormat whole = {n, 2, 1, false};
  rows.push_back(Time("dither 2 bits, one block", 8.25, [&] {
    gpu.dither(a.x, n, whole, kLimit, kDraw, NonFinite::kZero,
               reinterpret_cast<uint8_t*>(a.z), a.stats, Stream{});
  }));
}

}  // namespace telegrad::gpu_check
