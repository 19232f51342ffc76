#include <cstdint>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"
#include "perf/gpu_check/gpu_check.h"

namespace telegrad::gpu_check {
namespace {

using kernels::EncodeStats;
using kernels::NonFinite;
namespace gpu = kernels::cuda;
namespace cpu = kernels::reference;

void CheckEncode(size_t n, size_t skew, NonFinite mode, Verdict& verdict) {
  const auto grad = Floats(n, n + 1);
  auto residual = Floats(n, n + 2);
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  std::vector<uint8_t> codes(kernels::TwoBitBytes(n), 0x77);
  DeviceArray<uint8_t> c(codes, skew);
  EncodeStats stats;
  stats.num_nonzero = 3;
  stats.first_nonfinite = 100;
  DeviceArray<EncodeStats> s({stats});
  gpu::TwoBitEncode(g.get(), r.get(), n, 0.5f, mode, c.get(), s.get(),
                    Stream{});
  cpu::TwoBitEncode(grad.data(), residual.data(), n, 0.5f, mode, codes.data(),
                    &stats, Stream{});
  verdict.Compare("encode residual", n, 1, r.values(), residual);
  verdict.Compare("encode codes", n, 1, c.values(), codes);
  const EncodeStats got = s.values()[0];
  verdict.CompareStats("encode stats", n, 1, got, stats);
}

void CheckDecode(size_t n, size_t skew, Verdict& verdict) {
  const auto codes = RandomBytes(kernels::TwoBitBytes(n), n);
  DeviceArray<uint8_t> c(codes, skew);
  auto sum = Floats(n, n);
  std::vector<float> out(n);
  DeviceArray<float> s(sum, skew);
  DeviceArray<float> o(out, skew);
  gpu::TwoBitDecode(c.get(), n, 0.1f, o.get(), Stream{});
  gpu::TwoBitDecodeAdd(c.get(), n, 0.1f, s.get(), Stream{});
  cpu::TwoBitDecode(codes.data(), n, 0.1f, out.data(), Stream{});
  cpu::TwoBitDecodeAdd(codes.data(), n, 0.1f, sum.data(), Stream{});
  verdict.Compare("decode", n, 1, o.values(), out);
  verdict.Compare("decode_add", n, 1, s.values(), sum);
}

void CheckSums(size_t n, size_t skew, uint32_t frames, Verdict& verdict) {
  std::vector<std::vector<uint8_t>> contents(frames);
  std::vector<DeviceArray<uint8_t>> arrays;
  std::vector<const uint8_t*> host(frames);
  std::vector<const uint8_t*> device(frames);
  arrays.reserve(frames);
  for (uint32_t f = 0; f < frames; ++f) {
    contents[f] = RandomBytes(kernels::TwoBitBytes(n), f + 31 * n);
    arrays.emplace_back(contents[f], skew);
    host[f] = contents[f].data();
    device[f] = arrays[f].get();
  }
  std::vector<uint8_t> packed(kernels::PackedSumBytes(n, frames), 0x77);
  std::vector<float> decoded(n);
  std::vector<float> fused(n);
  std::vector<int32_t> residual(n, 3);
  std::vector<uint8_t> codes(kernels::TwoBitBytes(n), 0x77);
  DeviceArray<uint8_t> p(packed, skew);
  DeviceArray<float> d(decoded, skew);
  DeviceArray<float> f(fused, skew);
  DeviceArray<int32_t> r(residual, skew);
  DeviceArray<uint8_t> c(codes, skew);
  gpu::TwoBitSumPack(device.data(), frames, n, p.get(), Stream{});
  gpu::PackedSumDecode(p.get(), frames, n, 0.1f, d.get(), Stream{});
  gpu::TwoBitSumDecode(device.data(), frames, n, 0.1f, f.get(), Stream{});
  gpu::TwoBitReencode(device.data(), frames, n, r.get(), 2, 7, c.get(),
                      Stream{});
  cpu::TwoBitSumPack(host.data(), frames, n, packed.data(), Stream{});
  cpu::PackedSumDecode(packed.data(), frames, n, 0.1f, decoded.data(),
                       Stream{});
  cpu::TwoBitSumDecode(host.data(), frames, n, 0.1f, fused.data(), Stream{});
  cpu::TwoBitReencode(host.data(), frames, n, residual.data(), 2, 7,
                      codes.data(), Stream{});
  verdict.Compare("sum_pack", n, frames, p.values(), packed);
  verdict.Compare("packed_sum_decode", n, frames, d.values(), decoded);
  verdict.Compare("sum_decode", n, frames, f.values(), fused);
  verdict.Compare("reencode residual", n, frames, r.values(), residual);
  verdict.Compare("reencode codes", n, frames, c.values(), codes);
}

void CheckUnits(size_t n, size_t skew, Verdict& verdict) {
  std::vector<int32_t> residual(n);
  uint64_t state = n;
  for (int32_t& r : residual) r = static_cast<int32_t>(Next(state));
  for (const int bits : {3, -9, -35}) {
    DeviceArray<int32_t> r(residual, skew);
    gpu::RescaleUnits(r.get(), n, bits, Stream{});
    cpu::RescaleUnits(residual.data(), n, bits, Stream{});
    verdict.Compare("rescale_units", n, 1, r.values(), residual);
  }
}

void CheckCopies(size_t n, size_t skew, Verdict& verdict) {
  const auto bytes = RandomBytes(n, n);
  DeviceArray<uint8_t> from(bytes, skew);
  DeviceArray<uint8_t> to(std::vector<uint8_t>(n, 0x77), skew);
  gpu::Copy(from.get(), n, to.get(), Stream{});
  verdict.Compare("copy", n, 1, to.values(), bytes);
  if (n > kernels::kMaxPutBytes) return;
  DeviceArray<uint8_t> put(std::vector<uint8_t>(n, 0x77), skew);
  gpu::Put(bytes.data(), n, put.get(), Stream{});
  verdict.Compare("put", n, 1, put.values(), bytes);
}

void CheckDense(size_t n, size_t skew, Verdict& verdict) {
  const auto x = Floats(n, n + 5);
  auto sum = Floats(n, n + 6);
  auto weight = Floats(n, n + 7);
  auto momentum = Floats(n, n + 8);
  DeviceArray<float> dx(x, skew);
  DeviceArray<float> ds(sum, skew);
  DeviceArray<float> dw(weight, skew);
  DeviceArray<float> dm(momentum, skew);
  EncodeStats stats;
  DeviceArray<EncodeStats> dstats({stats});
  std::vector<double> powers = {-1, -1};
  DeviceArray<double> dpowers(powers);
  const kernels::SgdParameters params{0.1f, 0.9f, 1e-4f, 0.3f};
  gpu::SampledPower(dx.get(), ds.get(), n, dpowers.get(), Stream{});
  gpu::SampledPower(dx.get(), nullptr, n, dpowers.get() + 1, Stream{});
  gpu::AddF32(dx.get(), n, ds.get(), Stream{});
  gpu::CountNonFinite(dx.get(), n, dstats.get(), Stream{});
  gpu::SgdMomentum(dx.get(), n, params, dw.get(), dm.get(), Stream{});
  cpu::SampledPower(x.data(), sum.data(), n, &powers[0], Stream{});
  cpu::SampledPower(x.data(), nullptr, n, &powers[1], Stream{});
  cpu::AddF32(x.data(), n, sum.data(), Stream{});
  cpu::CountNonFinite(x.data(), n, &stats, Stream{});
  cpu::SgdMomentum(x.data(), n, params, weight.data(), momentum.data(),
                   Stream{});
  verdict.Compare("sampled_power", n, 1, dpowers.values(), powers);
  verdict.Compare("add", n, 1, ds.values(), sum);
  verdict.Compare("sgd weight", n, 1, dw.values(), weight);
  verdict.Compare("sgd momentum", n, 1, dm.values(), momentum);
  const EncodeStats got = dstats.values()[0];
  verdict.Compare<uint64_t>("count", n, 1,
                            {got.num_nonfinite, got.first_nonfinite},
                            {stats.num_nonfinite, stats.first_nonfinite});
}

}  // namespace

bool Verify() {
  std::vector<size_t> sizes(130);
  for (size_t n = 0; n < sizes.size(); ++n) sizes[n] = n;
  for (size_t n : {255, 256, 257, 1023, 1024, 1025, 4095, 4097, 100003}) {
    sizes.push_back(n);
  }
  Verdict verdict;
  for (const size_t n : sizes) {
    for (const size_t skew : {0, 1}) {
      CheckEncode(n, skew, NonFinite::kZero, verdict);
      CheckEncode(n, skew, NonFinite::kPropagate, verdict);
      CheckDecode(n, skew, verdict);
      CheckDense(n, skew, verdict);
      CheckUnits(n, skew, verdict);
      CheckCopies(n, skew, verdict);
      for (const uint32_t frames : {1u, 2u, 3u, 8u}) {
        CheckSums(n, skew, frames, verdict);
      }
    }
  }
  for (const uint32_t frames : {4u, 16u, 31u, 63u, 64u, 65u, 128u, 300u}) {
    for (const size_t n : {1, 33, 2053}) CheckSums(n, 0, frames, verdict);
  }
  CheckEncode(15485863, 0, NonFinite::kZero, verdict);
  CheckDecode(15485863, 0, verdict);
  CheckSums(1000003, 0, 4, verdict);
  VerifyCast(verdict);
  VerifySign(verdict);
  VerifyBlock(verdict);
  VerifyBlockTop(verdict);
  VerifySparse(verdict);
  VerifySparseList(verdict);
  VerifySelect(verdict);
  VerifyDrawn(verdict);
  VerifyRadix(verdict);
  VerifyLowRank(verdict);
  VerifyHalf(verdict);
  VerifyOptimizer(verdict);
  VerifyMxnet(verdict);
  VerifyBatch(verdict);
  std::printf("%zu comparisons, %zu differ\n", verdict.checks(),
              verdict.failures());
  return verdict.failures() == 0;
}

}  // namespace telegrad::gpu_check
