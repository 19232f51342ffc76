#include "kernels/cuda/cuda_kernels.h"
#include "kernels/drawn.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::DrawnKernels;
using kernels::EncodeStats;

constexpr uint64_t kSeed = 0x123456789ABCDEF0;

void Check(size_t n, size_t k, Verdict& verdict) {
  const DrawnKernels gpu = kernels::cuda::Drawn();
  const DrawnKernels cpu = kernels::reference::Drawn();
  auto residual = Floats(n, n + 1);
  auto sum = Floats(n, n + 2);
  std::vector<float> out(n);
  std::vector<uint8_t> payload(kernels::kDrawnValuesAt + 4 * k, 7);
  std::vector<uint8_t> total = payload;
  EncodeStats stats;
  DeviceArray<float> r(residual);
  DeviceArray<float> s(sum);
  DeviceArray<float> o(out);
  DeviceArray<uint8_t> p(payload);
  DeviceArray<uint8_t> t(total);
  DeviceArray<EncodeStats> counts({stats});
  gpu.take(r.get(), n, k, kSeed, p.get(), counts.get(), Stream{});
  gpu.decode(p.get(), n, k, o.get(), Stream{});
  gpu.decode_add(p.get(), n, k, s.get(), Stream{});
  const uint8_t* const on_gpu[] = {p.get(), p.get(), p.get()};
  gpu.sum(on_gpu, 3, k, t.get(), Stream{});
  cpu.take(residual.data(), n, k, kSeed, payload.data(), &stats, Stream{});
  cpu.decode(payload.data(), n, k, out.data(), Stream{});
  cpu.decode_add(payload.data(), n, k, sum.data(), Stream{});
  const uint8_t* const on_cpu[] = {payload.data(), payload.data(),
                                   payload.data()};
  cpu.sum(on_cpu, 3, k, total.data(), Stream{});
  verdict.Compare("drawn residual", n, 1, r.values(), residual);
  verdict.Compare("drawn payload", n, 1, p.values(), payload);
  verdict.Compare("drawn decode", n, 1, o.values(), out);
  verdict.Compare("drawn decode_add", n, 1, s.values(), sum);
  verdict.Compare("drawn sum", n, 3, t.values(), total);
  verdict.CompareStats("drawn stats", n, 1, counts.values()[0], stats);
}

}  // namespace

void VerifyDrawn(Verdict& verdict) {
  for (const size_t n : {1, 2, 5, 100, 4097, 100003}) {
    for (const size_t k : {size_t{1}, n / 100 + 1, n}) Check(n, k, verdict);
  }
  Check(3000017, 30000, verdict);
}

// 1 % of the elements, each of a sector of 32 bytes.
void MeasureDrawn(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const size_t k = n / 100;
  const DrawnKernels gpu = kernels::cuda::Drawn();
  rows.push_back(Time("drawn_take 1 %", 0.68, [&] {
    gpu.take(a.y, n, k, kSeed, a.packed, a.stats, Stream{});
  }));
  rows.push_back(Time("drawn_decode 1 %", 4.36,
                      [&] { gpu.decode(a.packed, n, k, a.y, Stream{}); }));
  rows.push_back(Time("drawn_decode_add 1 %", 0.68,
                      [&] { gpu.decode_add(a.packed, n, k, a.y, Stream{}); }));
}

}  // namespace telegrad::gpu_check
