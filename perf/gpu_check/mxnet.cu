#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "perf/gpu_check/families.h"

// The peer: kernels of MXNet's shape, written from its rule
// (src/kvstore/gradient_compression-inl.h of 1.9.1 and master), as its engine
// starts them: 256 threads a block, a thread for each word of 16 codes or byte
// of 8 signs, which goes over its elements one by one; a thread per element to
// decode.
namespace telegrad::gpu_check {
namespace {

using kernels::NonFinite;
namespace gpu = kernels::cuda;

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

constexpr size_t kCompared = 100003;  // elements

struct Outcome {
  std::vector<float> residual;
  std::vector<uint8_t> codes;
  std::vector<float> decoded;
};

// Two steps, and the second one's codes decoded.
template <typename Encode, typename Decode>
Outcome OutcomeOf(size_t num_bytes, Encode encode, Decode decode) {
  const DeviceArray<float> residual{std::vector<float>(kCompared)};
  const DeviceArray<uint8_t> codes{std::vector<uint8_t>(kCompared)};
  const DeviceArray<float> decoded{std::vector<float>(kCompared)};
  for (int step = 0; step < 2; ++step) encode(residual.get(), codes.get());
  decode(codes.get(), decoded.get());
  Outcome outcome = {residual.values(), codes.values(), decoded.values()};
  outcome.codes.resize(num_bytes);
  return outcome;
}

// A peer that computes something else is none.
void RequireSame(const Outcome& ours, const Outcome& peer, const char* codec) {
  if (ours.residual == peer.residual && ours.codes == peer.codes &&
      ours.decoded == peer.decoded) {
    return;
  }
  std::printf("mxnet's %s differs from ours\n", codec);
  std::exit(1);
}

void RequireSamePeers(const Arrays& a) {
  constexpr size_t n = kCompared;
  const kernels::SignKernels sign = gpu::Sign();
  const auto encode_2bit = [&](float* r, uint8_t* c) {
    gpu::TwoBitEncode(a.x, r, n, 0.25f, NonFinite::kZero, c, a.stats, Stream{});
  };
  const auto decode_2bit = [&](const uint8_t* c, float* out) {
    gpu::TwoBitDecode(c, n, 0.25f, out, Stream{});
  };
  RequireSame(OutcomeOf(kernels::TwoBitBytes(n), encode_2bit, decode_2bit),
              OutcomeOf(
                  kernels::TwoBitBytes(n),
                  [&](float* r, uint8_t* c) { Encode2Bit(a.x, r, n, c); },
                  [&](const uint8_t* c, float* out) { Decode2Bit(c, n, out); }),
              "2bit");
  const auto encode_1bit = [&](float* r, uint8_t* c) {
    sign.one_bit_encode(a.x, r, n, 0, 1, NonFinite::kZero, c, a.stats,
                        Stream{});
  };
  const auto decode_1bit = [&](const uint8_t* c, float* out) {
    sign.one_bit_decode(c, n, out, Stream{});
  };
  RequireSame(OutcomeOf(kernels::SignBytes(n), encode_1bit, decode_1bit),
              OutcomeOf(
                  kernels::SignBytes(n),
                  [&](float* r, uint8_t* c) { Encode1Bit(a.x, r, n, c); },
                  [&](const uint8_t* c, float* out) { Decode1Bit(c, n, out); }),
              "1bit");
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

void MeasureMxnet(Arrays& a, std::vector<Row>& rows) {
  RequireSamePeers(a);
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
