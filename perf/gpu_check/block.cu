#include <cstdint>
#include <string>
#include <vector>

#include "kernels/block.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::BlockFormat;
using kernels::EncodeStats;
using kernels::NonFinite;

constexpr kernels::DitherLimit kLimit;
constexpr kernels::DrawKey kDraw = {0x123456789ABCDEF0, 5};
constexpr BlockFormat kFormats[] = {{1024, 8, 127, false},
                                    {64, 4, 7, false},
                                    {4096, 8, 100, false},
                                    {192, 2, 1, false}};
constexpr BlockFormat kDitherFormats[] = {{512, 8, 127, false},
                                          {64, 4, 5, false},
                                          {512, 8, 24, true},
                                          {128, 4, 7, true},
                                          {size_t{1} << 28, 2, 1, false},
                                          {size_t{1} << 28, 4, 7, true}};

void CheckQuantize(size_t n, size_t skew, const BlockFormat& format,
                   NonFinite mode, Verdict& verdict) {
  const auto grad = Floats(n, n + 1);
  auto residual = Floats(n, n + 2);
  std::vector<uint8_t> payload(BlockPayloadBytes(n, format), 0x77);
  EncodeStats stats;
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  DeviceArray<uint8_t> p(payload, 4 * skew);
  DeviceArray<EncodeStats> s({stats});
  kernels::cuda::Block().quantize(g.get(), r.get(), n, format, mode, p.get(),
                                  s.get(), Stream{});
  kernels::reference::Block().quantize(grad.data(), residual.data(), n, format,
                                       mode, payload.data(), &stats, Stream{});
  verdict.Compare("block quantize residual", n, 1, r.values(), residual);
  verdict.Compare("block quantize payload", n, 1, p.values(), payload);
  verdict.CompareStats("block quantize stats", n, 1, s.values()[0], stats);
}

void CheckSharedQuantize(size_t n, size_t skew, uint32_t bits, NonFinite mode,
                         Verdict& verdict) {
  const auto grad = Floats(n, n + 3);
  auto residual = Floats(n, n + 4);
  std::vector<uint8_t> codes(kernels::CodeBytes(n, bits), 0x77);
  EncodeStats stats;
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  DeviceArray<uint8_t> c(codes, 4 * skew);
  DeviceArray<EncodeStats> s({stats});
  kernels::cuda::Block().shared_quantize(g.get(), r.get(), n, bits, 0.01f, mode,
                                         c.get(), s.get(), Stream{});
  kernels::reference::Block().shared_quantize(grad.data(), residual.data(), n,
                                              bits, 0.01f, mode, codes.data(),
                                              &stats, Stream{});
  verdict.Compare("shared quantize residual", n, 1, r.values(), residual);
  verdict.Compare("shared quantize codes", n, 1, c.values(), codes);
  verdict.CompareStats("shared quantize stats", n, 1, s.values()[0], stats);
}

// And decodes what was encoded.
void CheckDither(size_t n, size_t skew, const BlockFormat& format,
                 NonFinite mode, Verdict& verdict) {
  const auto grad = Floats(n, n + 5);
  std::vector<uint8_t> payload(BlockPayloadBytes(n, format), 0x77);
  EncodeStats stats;
  DeviceArray<float> g(grad, skew);
  DeviceArray<uint8_t> p(payload, 4 * skew);
  DeviceArray<EncodeStats> s({stats});
  const auto gpu = kernels::cuda::Block();
  const auto cpu = kernels::reference::Block();
  gpu.dither(g.get(), n, format, kLimit, kDraw, mode, p.get(), s.get(),
             Stream{});
  cpu.dither(grad.data(), n, format, kLimit, kDraw, mode, payload.data(),
             &stats, Stream{});
  verdict.Compare("dither payload", n, 1, p.values(), payload);
  verdict.CompareStats("dither stats", n, 1, s.values()[0], stats);
  auto sum = Floats(n, n + 6);
  std::vector<float> out(n);
  DeviceArray<float> device_sum(sum, skew);
  DeviceArray<float> device_out(out, skew);
  gpu.decode(p.get(), n, format, device_out.get(), Stream{});
  gpu.decode_add(p.get(), n, format, device_sum.get(), Stream{});
  cpu.decode(payload.data(), n, format, out.data(), Stream{});
  cpu.decode_add(payload.data(), n, format, sum.data(), Stream{});
  verdict.Compare("block decode", n, 1, device_out.values(), out);
  verdict.Compare("block decode_add", n, 1, device_sum.values(), sum);
}

void CheckSharedDecode(size_t n, size_t skew, uint32_t bits, Verdict& verdict) {
  const auto codes = RandomBytes(kernels::CodeBytes(n, bits), n);
  auto sum = Floats(n, n + 7);
  std::vector<float> out(n);
  DeviceArray<uint8_t> c(codes, 4 * skew);
  DeviceArray<float> s(sum, skew);
  DeviceArray<float> o(out, skew);
  const auto gpu = kernels::cuda::Block();
  const auto cpu = kernels::reference::Block();
  gpu.shared_decode(c.get(), n, bits, 0.1f, o.get(), Stream{});
  gpu.shared_decode_add(c.get(), n, bits, 0.1f, s.get(), Stream{});
  cpu.shared_decode(codes.data(), n, bits, 0.1f, out.data(), Stream{});
  cpu.shared_decode_add(codes.data(), n, bits, 0.1f, sum.data(), Stream{});
  verdict.Compare("shared decode", n, bits, o.values(), out);
  verdict.Compare("shared decode_add", n, bits, s.values(), sum);
}

void CheckSums(size_t n, uint32_t frames, uint32_t bits, uint32_t sum_bits,
               Verdict& verdict) {
  std::vector<std::vector<uint8_t>> contents(frames);
  std::vector<DeviceArray<uint8_t>> arrays;
  std::vector<const uint8_t*> host(frames);
  std::vector<const uint8_t*> device(frames);
  arrays.reserve(frames);
  for (uint32_t f = 0; f < frames; ++f) {
    contents[f] = RandomBytes(kernels::CodeBytes(n, bits), f + 31 * n);
    arrays.emplace_back(contents[f]);
    host[f] = contents[f].data();
    device[f] = arrays[f].get();
  }
  std::vector<uint8_t> sum(kernels::CodeBytes(n, sum_bits), 0x77);
  std::vector<float> out(n);
  DeviceArray<uint8_t> s(sum);
  DeviceArray<float> o(out);
  const auto gpu = kernels::cuda::Block();
  const auto cpu = kernels::reference::Block();
  gpu.sum_codes(device.data(), frames, n, bits, sum_bits, s.get(), Stream{});
  gpu.shared_sum_decode(device.data(), frames, n, bits, 0.1f, o.get(),
                        Stream{});
  cpu.sum_codes(host.data(), frames, n, bits, sum_bits, sum.data(), Stream{});
  cpu.shared_sum_decode(host.data(), frames, n, bits, 0.1f, out.data(),
                        Stream{});
  verdict.Compare("sum_codes", n, frames, s.values(), sum);
  verdict.Compare("shared_sum_decode", n, frames, o.values(), out);
}

std::string NameOf(const char* what, uint32_t bits) {
  return std::string(what) + " " + std::to_string(bits) + " bits";
}

}  // namespace

void VerifyBlock(Verdict& verdict) {
  for (const size_t n :
       {1, 2, 3, 4, 5, 15, 63, 64, 65, 127, 511, 512, 513, 1025, 100003}) {
    for (const size_t skew : {0, 1}) {
      for (const NonFinite mode : {NonFinite::kZero, NonFinite::kPropagate}) {
        for (const BlockFormat& format : kFormats) {
          CheckQuantize(n, skew, format, mode, verdict);
        }
        for (const BlockFormat& format : kDitherFormats) {
          CheckDither(n, skew, format, mode, verdict);
        }
        CheckSharedQuantize(n, skew, 4, mode, verdict);
        CheckSharedQuantize(n, skew, 8, mode, verdict);
      }
      for (const uint32_t bits : {2u, 4u, 8u, 16u, 32u}) {
        CheckSharedDecode(n, skew, bits, verdict);
      }
    }
    CheckSums(n, 3, 8, 16, verdict);
    CheckSums(n, 5, 4, 8, verdict);
    CheckSums(n, 100, 4, 16, verdict);
    CheckSums(n, 300, 8, 32, verdict);
  }
}

void MeasureBlock(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const auto gpu = kernels::cuda::Block();
  for (const uint32_t bits : {8u, 4u}) {
    const BlockFormat format = {1024, bits, (1u << (bits - 1)) - 1, false};
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
    rows.push_back(Time(NameOf("dither", bits), 4 + code, [&] {
      gpu.dither(a.x, n, format, kLimit, kDraw, NonFinite::kZero,
                 reinterpret_cast<uint8_t*>(a.z), a.stats, Stream{});
    }));
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
