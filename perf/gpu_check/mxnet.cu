#include <cstdint>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

// The peer: kernels of MXNet's shape, written from its rule
// (src/kvstore/gradient_compression-inl.h of 1.9.1 and master), as its engine
// starts them: 256 threads a block, a thread for each word of 16 codes or byte
// of 8 signs, which goes over its elements one by one; a thread per element to
// decode.
namespace telegrad::gpu_check {
namespace {

using kernels::EncodeStats;
using kernels::NonFinite;
namespace gpu = kernels::cuda;
namespace cpu = kernels::reference;

constexpr unsigned kThreads = 256;
constexpr size_t kMostBlocks = 65535;

unsigned BlocksFor(size_t threads) {
  const size_t blocks = (threads + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

__device__ inline size_t First() {
  return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline size_t Stride() {
  return static_cast<size_t>(gridDim.x) * blockDim.x;
}

__global__ void Quantize2Bit(const float* grad, float* residual, size_t n,
                             float threshold, uint8_t* codes) {
  for (size_t word = First(); 16 * word < n; word += Stride()) {
    *reinterpret_cast<uint32_t*>(codes + 4 * word) = 0;
    const size_t end = 16 * word + 16 < n ? 16 * word + 16 : n;
    for (size_t i = 16 * word; i < end; ++i) {
      const unsigned shift = 6 - 2 * (i % 4);
      residual[i] += grad[i];
      if (residual[i] >= threshold) {
        residual[i] -= threshold;
        codes[i / 4] = static_cast<uint8_t>(codes[i / 4] | 3u << shift);
      } else if (residual[i] <= -threshold) {
        residual[i] += threshold;
        codes[i / 4] = static_cast<uint8_t>(codes[i / 4] | 2u << shift);
      }
    }
  }
}

__global__ void Dequantize2Bit(const uint8_t* codes, size_t n, float threshold,
                               float* out) {
  for (size_t i = First(); i < n; i += Stride()) {
    const unsigned code = codes[i / 4] >> (6 - 2 * (i % 4)) & 3u;
    out[i] = code == 3 ? threshold : code == 2 ? -threshold : 0.0f;
  }
}

// num_bytes: with those that fill up the last word.
__global__ void Quantize1Bit(const float* grad, float* residual, size_t n,
                             float threshold, size_t num_bytes,
                             uint8_t* codes) {
  for (size_t byte = First(); byte < num_bytes; byte += Stride()) {
    codes[byte] = 0;
    const size_t end = 8 * byte + 8 < n ? 8 * byte + 8 : n;
    for (size_t i = 8 * byte; i < end; ++i) {
      residual[i] += grad[i];
      if (residual[i] > threshold) {
        residual[i] -= 1;
        codes[byte] = static_cast<uint8_t>(codes[byte] | 0x80u >> (i % 8));
      } else {
        residual[i] += 1;
      }
    }
  }
}

__global__ void Dequantize1Bit(const uint8_t* codes, size_t n, float* out) {
  for (size_t i = First(); i < n; i += Stride()) {
    out[i] = (codes[i / 8] & 0x80u >> (i % 8)) != 0 ? 1.0f : -1.0f;
  }
}

void Encode2Bit(const float* grad, float* residual, size_t n, uint8_t* codes) {
  Quantize2Bit<<<BlocksFor((n + 15) / 16), kThreads>>>(grad, residual, n, 0.25f,
                                                       codes);
}
void Decode2Bit(const uint8_t* codes, size_t n, float* out) {
  Dequantize2Bit<<<BlocksFor(n), kThreads>>>(codes, n, 0.25f, out);
}
void Encode1Bit(const float* grad, float* residual, size_t n, uint8_t* codes) {
  const size_t num_bytes = kernels::SignBytes(n);
  Quantize1Bit<<<BlocksFor(num_bytes), kThreads>>>(grad, residual, n, 0.0f,
                                                   num_bytes, codes);
}
void Decode1Bit(const uint8_t* codes, size_t n, float* out) {
  Dequantize1Bit<<<BlocksFor(n), kThreads>>>(codes, n, out);
}

// A payload of 1bit is the codes and the magnitude, here 1.
void Check(size_t n, bool is_one_bit, Verdict& verdict) {
  const auto grad = Floats(n, n + 1);
  auto residual = Floats(n, n + 2);
  const size_t num_bytes =
      is_one_bit ? kernels::SignBytes(n) : kernels::TwoBitBytes(n);
  std::vector<uint8_t> codes(num_bytes + 4);
  std::vector<float> out(n);
  DeviceArray<float> g(grad);
  DeviceArray<float> r(residual);
  DeviceArray<uint8_t> c(std::vector<uint8_t>(num_bytes, 0x77));
  DeviceArray<float> o(out);
  EncodeStats stats;
  if (is_one_bit) {
    Encode1Bit(g.get(), r.get(), n, c.get());
    Decode1Bit(c.get(), n, o.get());
    cpu::Sign().one_bit_encode(grad.data(), residual.data(), n, 0, 1,
                               NonFinite::kPropagate, codes.data(), &stats,
                               Stream{});
    cpu::Sign().one_bit_decode(codes.data(), n, out.data(), Stream{});
  } else {
    Encode2Bit(g.get(), r.get(), n, c.get());
    Decode2Bit(c.get(), n, o.get());
    cpu::TwoBitEncode(grad.data(), residual.data(), n, 0.25f,
                      NonFinite::kPropagate, codes.data(), &stats, Stream{});
    cpu::TwoBitDecode(codes.data(), n, 0.25f, out.data(), Stream{});
  }
  codes.resize(num_bytes);
  verdict.Compare("mxnet residual", n, 1, r.values(), residual);
  verdict.Compare("mxnet codes", n, 1, c.values(), codes);
  verdict.Compare("mxnet decode", n, 1, o.values(), out);
}

// `peer` does what the rows that are called `name`, with or without a suffix,
// do.
void SetPeer(const Row& peer, const std::string& name, std::vector<Row>& rows) {
  for (Row& row : rows) {
    if (row.name == name || row.name == name + " propagate") {
      row.peer_median_us = peer.median_us;
    }
  }
}

}  // namespace

void VerifyMxnet(Verdict& verdict) {
  for (const size_t n : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 255, 257,
                         1023, 1025, 100003}) {
    Check(n, false, verdict);
    Check(n, true, verdict);
  }
}

void MeasureMxnet(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  const Row encode_2bit = Time("mxnet 2bit encode", 12.25,
                               [&] { Encode2Bit(a.x, a.y, n, a.packed); });
  const Row decode_2bit =
      Time("mxnet 2bit decode", 4.25, [&] { Decode2Bit(a.frames[0], n, a.y); });
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  const Row encode_1bit = Time("mxnet 1bit encode", 12.125,
                               [&] { Encode1Bit(a.x, a.y, n, a.packed); });
  const Row decode_1bit =
      Time("mxnet 1bit decode", 4.125, [&] { Decode1Bit(a.packed, n, a.y); });
  SetPeer(encode_2bit, "two_bit_encode", rows);
  SetPeer(decode_2bit, "two_bit_decode", rows);
  SetPeer(encode_1bit, "1bit_encode", rows);
  SetPeer(decode_1bit, "1bit_decode", rows);
  rows.insert(rows.end(), {encode_2bit, decode_2bit, encode_1bit, decode_1bit});
}

}  // namespace telegrad::gpu_check
