#include <string>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/radix.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::EncodeStats;
using kernels::NonFinite;

void CheckEncode(size_t n, size_t skew, NonFinite mode, Verdict& verdict) {
  const auto grad = Floats(n, n + 1);
  auto residual = Floats(n, n + 2);
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  std::vector<uint8_t> payload(kernels::RadixBytes(n), 0x77);
  DeviceArray<uint8_t> p(payload, skew);
  EncodeStats stats;
  stats.num_nonzero = 3;
  stats.first_nonfinite = 100;
  DeviceArray<EncodeStats> s({stats});
  kernels::cuda::Radix().encode(g.get(), r.get(), n, 0.5f, mode, p.get(),
                                s.get(), Stream{});
  kernels::reference::Radix().encode(grad.data(), residual.data(), n, 0.5f,
                                     mode, payload.data(), &stats, Stream{});
  verdict.Compare("radix encode residual", n, 1, r.values(), residual);
  verdict.Compare("radix encode", n, 1, p.values(), payload);
  const EncodeStats got = s.values()[0];
  verdict.CompareStats("radix encode stats", n, 1, got, stats);
}

void CheckDecode(size_t n, size_t skew, Verdict& verdict) {
  const auto payload = RandomBytes(kernels::RadixBytes(n), n);
  DeviceArray<uint8_t> p(payload, skew);
  auto sum = Floats(n, n);
  std::vector<float> out(n);
  DeviceArray<float> s(sum, skew);
  DeviceArray<float> o(out, skew);
  const kernels::RadixKernels gpu = kernels::cuda::Radix();
  const kernels::RadixKernels cpu = kernels::reference::Radix();
  gpu.decode(p.get(), n, 0.1f, o.get(), Stream{});
  gpu.decode_add(p.get(), n, 0.1f, s.get(), Stream{});
  cpu.decode(payload.data(), n, 0.1f, out.data(), Stream{});
  cpu.decode_add(payload.data(), n, 0.1f, sum.data(), Stream{});
  verdict.Compare("radix decode", n, 1, o.values(), out);
  verdict.Compare("radix decode_add", n, 1, s.values(), sum);
}

void CheckSums(size_t n, size_t skew, uint32_t frames, Verdict& verdict) {
  std::vector<std::vector<uint8_t>> contents(frames);
  std::vector<DeviceArray<uint8_t>> arrays;
  std::vector<const uint8_t*> host(frames);
  std::vector<const uint8_t*> device(frames);
  arrays.reserve(frames);
  for (uint32_t f = 0; f < frames; ++f) {
    contents[f] = RandomBytes(kernels::RadixBytes(n), f + 31 * n);
    arrays.emplace_back(contents[f], skew);
    host[f] = contents[f].data();
    device[f] = arrays[f].get();
  }
  std::vector<uint8_t> packed(kernels::RadixSumBytes(n, frames), 0x77);
  std::vector<float> decoded(n);
  std::vector<float> fused(n);
  std::vector<int32_t> residual(n, 3);
  std::vector<uint8_t> codes(kernels::RadixBytes(n), 0x77);
  DeviceArray<int32_t> r(residual, skew);
  DeviceArray<uint8_t> c(codes, skew);
  DeviceArray<uint8_t> p(packed, skew);
  DeviceArray<float> d(decoded, skew);
  DeviceArray<float> f(fused, skew);
  const kernels::RadixKernels gpu = kernels::cuda::Radix();
  const kernels::RadixKernels cpu = kernels::reference::Radix();
  gpu.sum_pack(device.data(), frames, n, p.get(), Stream{});
  gpu.packed_sum_decode(p.get(), frames, n, 0.1f, d.get(), Stream{});
  gpu.sum_decode(device.data(), frames, n, 0.1f, f.get(), Stream{});
  gpu.reencode(device.data(), frames, n, r.get(), 2, 7, c.get(), Stream{});
  cpu.reencode(host.data(), frames, n, residual.data(), 2, 7, codes.data(),
               Stream{});
  cpu.sum_pack(host.data(), frames, n, packed.data(), Stream{});
  cpu.packed_sum_decode(packed.data(), frames, n, 0.1f, decoded.data(),
                        Stream{});
  cpu.sum_decode(host.data(), frames, n, 0.1f, fused.data(), Stream{});
  verdict.Compare("radix sum_pack", n, frames, p.values(), packed);
  verdict.Compare("radix packed_sum_decode", n, frames, d.values(), decoded);
  verdict.Compare("radix sum_decode", n, frames, f.values(), fused);
  verdict.Compare("radix reencode residual", n, frames, r.values(), residual);
  verdict.Compare("radix reencode codes", n, frames, c.values(), codes);
}

}  // namespace

void VerifyRadix(Verdict& verdict) {
  std::vector<size_t> sizes(330);
  for (size_t n = 0; n < sizes.size(); ++n) sizes[n] = n;
  for (size_t n : {639, 640, 641, 959, 961, 4095, 4097, 100003}) {
    sizes.push_back(n);
  }
  for (const size_t n : sizes) {
    for (const size_t skew : {0, 1}) {
      CheckEncode(n, skew, NonFinite::kZero, verdict);
      CheckEncode(n, skew, NonFinite::kPropagate, verdict);
      CheckDecode(n, skew, verdict);
      for (const uint32_t frames : {1u, 2u, 3u}) {
        CheckSums(n, skew, frames, verdict);
      }
    }
  }
  for (const uint32_t frames : {4u, 5u, 6u, 8u, 16u, 63u, 64u, 65u, 300u}) {
    for (const size_t n : {1, 33, 5407}) CheckSums(n, 0, frames, verdict);
  }
  CheckEncode(15485863, 0, NonFinite::kZero, verdict);
  CheckDecode(15485863, 0, verdict);
}

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
