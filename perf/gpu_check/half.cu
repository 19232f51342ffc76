#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

// Encoders of 16-bit gradients.
namespace telegrad::gpu_check {
namespace {

using kernels::CastFormatKernels;
using kernels::CastKernels;
using kernels::EncodeStats;
using kernels::NonFinite;
using kernels::SparseKernels;
using kernels::ThresholdEncodeHalfFn;
using kernels::TwoBitEncodeHalfFn;

struct Format {
  const char* name;
  CastFormatKernels CastKernels::*cast;
  TwoBitEncodeHalfFn* gpu;
  TwoBitEncodeHalfFn* cpu;
  ThresholdEncodeHalfFn* SparseKernels::*threshold;
};
const Format kFormats[] = {
    {"fp16", &CastKernels::fp16, kernels::cuda::TwoBitEncodeFp16,
     kernels::reference::TwoBitEncodeFp16,
     &SparseKernels::threshold_encode_fp16},
    {"bf16", &CastKernels::bf16, kernels::cuda::TwoBitEncodeBf16,
     kernels::reference::TwoBitEncodeBf16,
     &SparseKernels::threshold_encode_bf16}};

std::vector<uint16_t> Halves(const Format& format, size_t n) {
  const auto values = Floats(n, n + 1);
  std::vector<uint16_t> halves(n);
  EncodeStats stats;
  (kernels::reference::Cast().*format.cast)
      .encode(values.data(), nullptr, n, NonFinite::kPropagate,
              reinterpret_cast<uint8_t*>(halves.data()), &stats, Stream{});
  return halves;
}

EncodeStats SomeStats() {
  EncodeStats stats;
  stats.num_nonzero = 3;
  stats.first_nonfinite = 100;
  return stats;
}

void CheckTwoBit(const Format& format, const std::vector<uint16_t>& grad,
                 size_t skew, NonFinite mode, Verdict& verdict) {
  const size_t n = grad.size();
  auto residual = Floats(n, n + 2);
  std::vector<uint8_t> codes(kernels::TwoBitBytes(n), 0x77);
  EncodeStats stats = SomeStats();
  DeviceArray<uint16_t> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  DeviceArray<uint8_t> c(codes, skew);
  DeviceArray<EncodeStats> s({stats});
  format.gpu(g.get(), r.get(), n, 0.5f, mode, c.get(), s.get(), Stream{});
  format.cpu(grad.data(), residual.data(), n, 0.5f, mode, codes.data(), &stats,
             Stream{});
  verdict.Compare("encode half residual", n, 1, r.values(), residual);
  verdict.Compare("encode half codes", n, 1, c.values(), codes);
  verdict.CompareStats("encode half stats", n, 1, s.values()[0], stats);
}

void CheckThreshold(const Format& format, const std::vector<uint16_t>& grad,
                    size_t skew, NonFinite mode, Verdict& verdict) {
  const size_t n = grad.size();
  auto residual = Floats(n, n + 2);
  std::vector<uint32_t> list(n + kernels::kSurvivorSlack, 7);
  std::vector<uint64_t> count = {99};
  EncodeStats stats = SomeStats();
  DeviceArray<uint16_t> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  DeviceArray<uint32_t> l(list, skew);
  DeviceArray<uint64_t> c(count);
  DeviceArray<EncodeStats> s({stats});
  DeviceArray<uint64_t> scratch(
      std::vector<uint64_t>(kernels::SparseScratchBytes(n) / 8, 0x55));
  (kernels::cuda::Sparse().*format.threshold)(g.get(), r.get(), n, 0.5f, mode,
                                              l.get(), c.get(), s.get(),
                                              scratch.get(), Stream{});
  (kernels::reference::Sparse().*format.threshold)(
      grad.data(), residual.data(), n, 0.5f, mode, list.data(), count.data(),
      &stats, nullptr, Stream{});
  verdict.Compare("threshold half count", n, 1, c.values(), count);
  list.resize(count[0]);
  verdict.Compare("threshold half list", n, 1, l.values(), list);
  verdict.Compare("threshold half residual", n, 1, r.values(), residual);
  verdict.CompareStats("threshold half stats", n, 1, s.values()[0], stats);
}

}  // namespace

void VerifyHalf(Verdict& verdict) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<size_t> sizes(258);
  for (size_t n = 0; n < sizes.size(); ++n) sizes[n] = n;
  for (size_t n : {1023, 1025, 4095, 4096, 4097, 100003, 1000003}) {
    sizes.push_back(n);
  }
  for (const Format& format : kFormats) {
    for (const NonFinite mode : {NonFinite::kZero, NonFinite::kPropagate}) {
      CheckTwoBit(format, all, 0, mode, verdict);
      CheckThreshold(format, all, 0, mode, verdict);
      for (const size_t n : sizes) {
        const auto grad = Halves(format, n);
        for (const size_t skew : {0, 1}) {
          CheckTwoBit(format, grad, skew, mode, verdict);
          CheckThreshold(format, grad, skew, mode, verdict);
        }
      }
    }
  }
}

// x is uniform in [-1/4, 1/4]; z holds it in each format.
void MeasureHalf(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  auto* const halves = reinterpret_cast<uint16_t*>(a.z);
  auto* const list = Allocate<uint32_t>(n + kernels::kSurvivorSlack);
  auto* const count = Allocate<uint64_t>(1);
  auto* const scratch = Allocate<uint8_t>(kernels::SparseScratchBytes(n));
  const SparseKernels sparse = kernels::cuda::Sparse();
  for (const Format& format : kFormats) {
    const std::string name = format.name;
    (kernels::cuda::Cast().*format.cast)
        .encode(a.x, nullptr, n, NonFinite::kZero,
                reinterpret_cast<uint8_t*>(a.z), a.stats, Stream{});
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    rows.push_back(Time("two_bit_encode " + name, 10.25, [&] {
      format.gpu(halves, a.y, n, 0.25f, NonFinite::kZero, a.packed, a.stats,
                 Stream{});
    }));
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    rows.push_back(Time("threshold_encode " + name, 10, [&] {
      (sparse.*format.threshold)(halves, a.y, n, 6.25f, NonFinite::kZero, list,
                                 count, a.stats, scratch, Stream{});
    }));
  }
  cudaFree(list);
  cudaFree(count);
  cudaFree(scratch);
}

}  // namespace telegrad::gpu_check
