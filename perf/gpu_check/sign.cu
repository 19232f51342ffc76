#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "kernels/sign.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::EncodeStats;
using kernels::NonFinite;
using kernels::SignKernels;

// Runs `encode` with the kernels of both, and compares. Returns the payload.
template <typename Encode>
std::vector<uint8_t> CheckEncode(const char* what, size_t n, size_t skew,
                                 size_t payload_bytes, Verdict& verdict,
                                 Encode encode) {
  const auto grad = Floats(n, n + 1);
  auto residual = Floats(n, n + 2);
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  std::vector<uint8_t> payload(payload_bytes, 0x77);
  DeviceArray<uint8_t> p(payload, skew);
  EncodeStats stats;
  stats.first_nonfinite = 100;
  DeviceArray<EncodeStats> s({stats});
  encode(kernels::cuda::Sign(), g.get(), r.get(), p.get(), s.get());
  encode(kernels::reference::Sign(), grad.data(), residual.data(),
         payload.data(), &stats);
  verdict.Compare(what, n, 1, r.values(), residual);
  verdict.Compare(what, n, 1, p.values(), payload);
  const EncodeStats got = s.values()[0];
  verdict.CompareStats(what, n, 1, got, stats);
  return payload;
}

// Runs `decode`, which writes or adds to its last argument, with both.
template <typename Decode>
void CheckDecode(const char* what, const std::vector<uint8_t>& payload,
                 size_t n, size_t skew, Verdict& verdict, Decode decode) {
  auto out = Floats(n, n + 3);
  DeviceArray<uint8_t> p(payload, skew);
  DeviceArray<float> o(out, skew);
  decode(kernels::cuda::Sign(), p.get(), o.get());
  decode(kernels::reference::Sign(), payload.data(), out.data());
  verdict.Compare(what, n, 1, o.values(), out);
}

void CheckOneBit(size_t n, size_t skew, NonFinite mode, Verdict& verdict) {
  const auto payload = CheckEncode(
      "1bit encode", n, skew, kernels::OneBitBytes(n), verdict,
      [&](const SignKernels& sign, const float* g, float* r, uint8_t* out,
          EncodeStats* stats) {
        sign.one_bit_encode(g, r, n, -0.5f, 2, mode, out, stats, Stream{});
      });
  CheckDecode("1bit decode", payload, n, skew, verdict,
              [&](const SignKernels& sign, const uint8_t* p, float* out) {
                sign.one_bit_decode(p, n, out, Stream{});
              });
  CheckDecode("1bit decode_add", payload, n, skew, verdict,
              [&](const SignKernels& sign, const uint8_t* p, float* out) {
                sign.one_bit_decode_add(p, n, out, Stream{});
              });
}

void CheckBlock(size_t n, size_t block, size_t skew, NonFinite mode,
                Verdict& verdict) {
  const auto payload = CheckEncode(
      "onebit encode", n, skew, kernels::BlockSignBytes(n, block), verdict,
      [&](const SignKernels& sign, const float* g, float* r, uint8_t* out,
          EncodeStats* stats) {
        sign.block_encode(g, r, n, block, mode, out, stats, Stream{});
      });
  CheckDecode("onebit decode", payload, n, skew, verdict,
              [&](const SignKernels& sign, const uint8_t* p, float* out) {
                sign.block_decode(p, n, block, out, Stream{});
              });
  CheckDecode("onebit decode_add", payload, n, skew, verdict,
              [&](const SignKernels& sign, const uint8_t* p, float* out) {
                sign.block_decode_add(p, n, block, out, Stream{});
              });
}

void CheckCounts(size_t n, size_t skew, uint32_t frames, Verdict& verdict) {
  std::vector<std::vector<uint8_t>> contents(frames);
  std::vector<DeviceArray<uint8_t>> arrays;
  std::vector<const uint8_t*> host(frames);
  std::vector<const uint8_t*> device(frames);
  arrays.reserve(frames);
  for (uint32_t f = 0; f < frames; ++f) {
    contents[f] = RandomBytes(kernels::SignBytes(n), f + 31 * n);
    arrays.emplace_back(contents[f], skew);
    host[f] = contents[f].data();
    device[f] = arrays[f].get();
  }
  std::vector<uint8_t> counts(kernels::SignCountBytes(n, frames), 0x77);
  DeviceArray<uint8_t> c(counts, skew);
  kernels::cuda::Sign().count_pack(device.data(), frames, n, c.get(), Stream{});
  kernels::reference::Sign().count_pack(host.data(), frames, n, counts.data(),
                                        Stream{});
  verdict.Compare("1bit count_pack", n, frames, c.values(), counts);
  CheckDecode("1bit count_decode", counts, n, skew, verdict,
              [&](const SignKernels& sign, const uint8_t* p, float* out) {
                sign.count_decode(p, frames, n, out, Stream{});
              });
}

}  // namespace

void VerifySign(Verdict& verdict) {
  for (const size_t n : {1, 2, 3, 7, 8, 9, 31, 32, 33, 127, 128, 129, 1023,
                         1025, 2048, 2049, 8193, 100003, 1000003}) {
    for (const size_t skew : {0, 1}) {
      for (const NonFinite mode : {NonFinite::kZero, NonFinite::kPropagate}) {
        CheckOneBit(n, skew, mode, verdict);
        for (const size_t block : {128, 1152, 2048, 4096, 8192}) {
          CheckBlock(n, block, skew, mode, verdict);
        }
      }
      for (const uint32_t frames : {1u, 2u, 3u, 4u, 8u, 15u, 16u}) {
        CheckCounts(n, skew, frames, verdict);
      }
    }
  }
  for (const uint32_t frames : {63u, 64u, 65u, 128u, 300u}) {
    CheckCounts(1031, 0, frames, verdict);
  }
}

void MeasureSign(Arrays& a, std::vector<Row>& rows) {
  const SignKernels sign = kernels::cuda::Sign();
  const size_t n = num_elements;
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  rows.push_back(Time("1bit_encode", 12.125, [&] {
    sign.one_bit_encode(a.x, a.y, n, 0, 1, NonFinite::kZero, a.packed, a.stats,
                        Stream{});
  }));
  rows.push_back(Time("1bit_decode", 4.125, [&] {
    sign.one_bit_decode(a.packed, n, a.y, Stream{});
  }));
  rows.push_back(Time("1bit_decode_add", 8.125, [&] {
    sign.one_bit_decode_add(a.packed, n, a.y, Stream{});
  }));
  for (const uint32_t w : {2u, 8u}) {
    const double sum = kernels::SignCountPlanes(w) / 8.0;
    const std::string suffix = " W=" + std::to_string(w);
    rows.push_back(Time("1bit_count_pack" + suffix, w / 8.0 + sum, [&] {
      sign.count_pack(a.frames.data(), w, n, a.packed, Stream{});
    }));
    rows.push_back(Time("1bit_count_decode" + suffix, sum + 4, [&] {
      sign.count_decode(a.packed, w, n, a.y, Stream{});
    }));
  }
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  const double bytes = 0.125 + 4.0 / 2048;
  rows.push_back(Time("onebit_encode", 12 + bytes, [&] {
    sign.block_encode(a.x, a.y, n, 2048, NonFinite::kZero, a.packed, a.stats,
                      Stream{});
  }));
  rows.push_back(Time("onebit_decode", 4 + bytes, [&] {
    sign.block_decode(a.packed, n, 2048, a.y, Stream{});
  }));
  rows.push_back(Time("onebit_decode_add", 8 + bytes, [&] {
    sign.block_decode_add(a.packed, n, 2048, a.y, Stream{});
  }));
}

}  // namespace telegrad::gpu_check
