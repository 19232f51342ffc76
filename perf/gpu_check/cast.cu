#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cast.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::CastFormatKernels;
using kernels::CastKernels;
using kernels::EncodeStats;
using kernels::NonFinite;

void CheckEncode(CastFormatKernels CastKernels::*format, size_t n, size_t skew,
                 bool has_residual, NonFinite mode, Verdict& verdict) {
  const auto grad = Floats(n, n + 1);
  auto residual = Floats(n, n + 2);
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  std::vector<uint8_t> codes(2 * n, 0x77);
  DeviceArray<uint8_t> c(codes, skew);
  EncodeStats stats;
  stats.first_nonfinite = 100;
  DeviceArray<EncodeStats> s({stats});
  (kernels::cuda::Cast().*format)
      .encode(g.get(), has_residual ? r.get() : nullptr, n, mode, c.get(),
              s.get(), Stream{});
  (kernels::reference::Cast().*format)
      .encode(grad.data(), has_residual ? residual.data() : nullptr, n, mode,
              codes.data(), &stats, Stream{});
  verdict.Compare("cast residual", n, 1, r.values(), residual);
  verdict.Compare("cast codes", n, 1, c.values(), codes);
  const EncodeStats got = s.values()[0];
  verdict.CompareStats("cast stats", n, 1, got, stats);
}

void CheckDecode(CastFormatKernels CastKernels::*format,
                 const std::vector<uint8_t>& codes, size_t skew,
                 Verdict& verdict) {
  const size_t n = codes.size() / 2;
  DeviceArray<uint8_t> c(codes, skew);
  auto sum = Floats(n, n);
  std::vector<float> out(n);
  DeviceArray<float> s(sum, skew);
  DeviceArray<float> o(out, skew);
  const CastFormatKernels gpu = kernels::cuda::Cast().*format;
  const CastFormatKernels cpu = kernels::reference::Cast().*format;
  gpu.decode(c.get(), n, o.get(), Stream{});
  gpu.decode_add(c.get(), n, s.get(), Stream{});
  cpu.decode(codes.data(), n, out.data(), Stream{});
  cpu.decode_add(codes.data(), n, sum.data(), Stream{});
  verdict.Compare("cast decode", n, 1, o.values(), out);
  verdict.Compare("cast decode_add", n, 1, s.values(), sum);
}

}  // namespace

void VerifyCast(Verdict& verdict) {
  std::vector<uint8_t> all(2 * 65536);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<uint8_t>(i % 2 == 0 ? i / 2 : i / 512);
  }
  for (const auto format : {&CastKernels::fp16, &CastKernels::bf16}) {
    CheckDecode(format, all, 0, verdict);
    for (const size_t n :
         {1, 2, 3, 4, 5, 31, 127, 128, 255, 1023, 1025, 100003, 1000003}) {
      for (const size_t skew : {0, 1}) {
        CheckDecode(format, RandomBytes(2 * n, n), skew, verdict);
        for (const bool has_residual : {false, true}) {
          CheckEncode(format, n, skew, has_residual, NonFinite::kZero, verdict);
          CheckEncode(format, n, skew, has_residual, NonFinite::kPropagate,
                      verdict);
        }
      }
    }
  }
}

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
