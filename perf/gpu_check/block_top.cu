#include "kernels/block_top.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::BlockTopKernels;
using kernels::EncodeStats;
using kernels::NonFinite;
using kernels::TopRule;

void CheckTop(size_t n, const TopRule& rule, NonFinite nonfinite, size_t skew,
              Verdict& verdict) {
  const BlockTopKernels gpu = kernels::cuda::BlockTop();
  const BlockTopKernels cpu = kernels::reference::BlockTop();
  const auto grad = Floats(n, n + 1);
  auto residual = Floats(n, n + 2);
  auto sum = Floats(n, n + 3);
  std::vector<float> out(n);
  std::vector<uint8_t> payload(
      kernels::TopPayloadBytes(kernels::NumTop(n, rule.keep)), 7);
  std::vector<uint64_t> scratch(kernels::TopScratchBytes(n, rule.keep) / 8 + 1);
  EncodeStats stats;
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  DeviceArray<float> s(sum, skew);
  DeviceArray<float> o(out, skew);
  DeviceArray<uint8_t> p(payload);
  DeviceArray<uint64_t> work(scratch);
  DeviceArray<EncodeStats> counts({stats});
  gpu.encode(g.get(), r.get(), n, rule, nonfinite, p.get(), counts.get(),
             work.get(), Stream{});
  gpu.decode(p.get(), n, rule.keep, o.get(), Stream{});
  gpu.decode_add(p.get(), n, rule.keep, s.get(), Stream{});
  cpu.encode(grad.data(), residual.data(), n, rule, nonfinite, payload.data(),
             &stats, scratch.data(), Stream{});
  cpu.decode(payload.data(), n, rule.keep, out.data(), Stream{});
  cpu.decode_add(payload.data(), n, rule.keep, sum.data(), Stream{});
  verdict.Compare("block_top residual", n, 1, r.values(), residual);
  verdict.Compare("block_top payload", n, 1, p.values(), payload);
  verdict.Compare("block_top decode", n, 1, o.values(), out);
  verdict.Compare("block_top decode_add", n, 1, s.values(), sum);
  verdict.CompareStats("block_top stats", n, 1, counts.values()[0], stats);
}

}  // namespace

void VerifyBlockTop(Verdict& verdict) {
  for (const size_t n : {1, 3, 100, 4095, 4096, 4097, 100003}) {
    for (const size_t keep : {size_t{4}, size_t{64}, kernels::kMostTop}) {
      CheckTop(n, {keep, 0.95f}, NonFinite::kZero, 0, verdict);
      CheckTop(n, {keep, 1.0f}, NonFinite::kPropagate, 1, verdict);
    }
  }
  CheckTop(3000017, {}, NonFinite::kZero, 0, verdict);
}

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
