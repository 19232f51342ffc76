#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

// Decodes fused with the optimizer's step.
namespace telegrad::gpu_check {
namespace {

namespace gpu = kernels::cuda;
namespace cpu = kernels::reference;

constexpr kernels::SgdParameters kParameters{0.1f, 0.9f, 1e-4f, 0.3f};

// num_frames 0: codes; else a packed sum of so many.
void Check(size_t n, size_t skew, uint32_t num_frames, Verdict& verdict) {
  const auto codes =
      RandomBytes(num_frames == 0 ? kernels::TwoBitBytes(n)
                                  : kernels::PackedSumBytes(n, num_frames),
                  n);
  auto weight = Floats(n, n + 1);
  auto momentum = Floats(n, n + 2);
  DeviceArray<uint8_t> c(codes, skew);
  DeviceArray<float> w(weight, skew);
  DeviceArray<float> m(momentum, skew);
  if (num_frames == 0) {
    gpu::TwoBitDecodeSgd(c.get(), n, 0.1f, kParameters, w.get(), m.get(),
                         Stream{});
    cpu::TwoBitDecodeSgd(codes.data(), n, 0.1f, kParameters, weight.data(),
                         momentum.data(), Stream{});
  } else {
    gpu::PackedSumDecodeSgd(c.get(), num_frames, n, 0.1f, kParameters, w.get(),
                            m.get(), Stream{});
    cpu::PackedSumDecodeSgd(codes.data(), num_frames, n, 0.1f, kParameters,
                            weight.data(), momentum.data(), Stream{});
  }
  verdict.Compare("decode_sgd weight", n, num_frames, w.values(), weight);
  verdict.Compare("decode_sgd momentum", n, num_frames, m.values(), momentum);
}

}  // namespace

void VerifyDecodeSgd(Verdict& verdict) {
  std::vector<size_t> sizes(258);
  for (size_t n = 0; n < sizes.size(); ++n) sizes[n] = n;
  for (size_t n : {1023, 1025, 4095, 4096, 4097, 100003, 1000003}) {
    sizes.push_back(n);
  }
  for (const size_t n : sizes) {
    for (const size_t skew : {0, 1}) {
      for (const uint32_t num_frames : {0u, 1u, 2u, 5u, 9u, 300u}) {
        Check(n, skew, num_frames, verdict);
      }
    }
  }
}

void MeasureDecodeSgd(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  constexpr kernels::SgdParameters kGentle{1e-3f, 0.9f, 0.0f, 1.0f};
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  Require(cudaMemset(a.z, 0, 4 * n), "cudaMemset");
  rows.push_back(Time("two_bit_decode_sgd", 16.25, [&] {
    gpu::TwoBitDecodeSgd(a.frames[0], n, 0.5f, kGentle, a.y, a.z, Stream{});
  }));
  for (const uint32_t w : {2u, 8u}) {
    gpu::TwoBitSumPack(a.frames.data(), w, n, a.packed, Stream{});
    rows.push_back(Time("packed_sum_decode_sgd W=" + std::to_string(w),
                        kernels::SumBits(w) / 8.0 + 16, [&] {
                          gpu::PackedSumDecodeSgd(a.packed, w, n, 0.5f, kGentle,
                                                  a.y, a.z, Stream{});
                        }));
  }
}

}  // namespace telegrad::gpu_check
