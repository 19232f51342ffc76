#pragma once

#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/digits.cuh"

// Encoding to digits: a thread takes a quad of codes.
namespace telegrad::kernels::cuda {

// The rule of kernels/two_bit.h; returns the digit.
template <bool kZeroNonFinite>
__device__ inline uint32_t QuantizeDigit(float grad, float threshold, size_t i,
                                         float& residual, Tally& tally) {
  float v = residual + grad;
  if (kZeroNonFinite && !IsFinite(v)) {
    ++tally.num_nonfinite;
    if (i < tally.first_nonfinite) tally.first_nonfinite = i;
    v = residual + 0.0f;
  }
  const bool is_positive = v >= threshold;
  const bool is_negative = v <= -threshold;
  tally.num_nonzero += is_positive || is_negative;
  residual = is_positive ? v - threshold : is_negative ? v + threshold : v;
  return is_positive ? 2u : is_negative ? 0u : 1u;
}

// The bytes of quad q, as many as it has.
__device__ inline void StoreQuad(const uint32_t (&numbers)[4], const Quad& quad,
                                 size_t q, uint8_t* payload) {
  if (quad.is_whole()) {
    StoreWord(
        numbers[0] | numbers[1] << 8 | numbers[2] << 16 | numbers[3] << 24, q,
        payload);
    return;
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (quad.column + c < quad.num_bytes) {
      payload[4 * q + c] = static_cast<uint8_t>(numbers[c]);
    }
  }
}

// Encodes as thread number `thread` of `num_threads`.
template <bool kVector, bool kZeroNonFinite>
__device__ inline void RadixEncodePart(const float* __restrict__ grad,
                                       float* __restrict__ residual, size_t n,
                                       float threshold,
                                       uint8_t* __restrict__ payload,
                                       size_t num_quads, size_t thread,
                                       size_t num_threads, Tally& tally) {
  for (size_t q = thread; q < num_quads; q += num_threads) {
    const Quad quad = QuadAt(q, n);
    uint32_t numbers[4] = {};
    if (quad.is_whole()) {
      // All loads before the first store, which could be of the same memory for
      // all that the compiler knows.
      float g[kDigits][4];
      float r[kDigits][4];
#pragma unroll
      for (int p = 0; p < kDigits; ++p) {
        Load4<kVector>(grad, quad.element(p), n, g[p]);
        Load4<kVector>(residual, quad.element(p), n, r[p]);
      }
#pragma unroll
      for (int p = kDigits - 1; p >= 0; --p) {
        const size_t i = quad.element(p);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          numbers[c] =
              3 * numbers[c] + QuantizeDigit<kZeroNonFinite>(
                                   g[p][c], threshold, i + c, r[p][c], tally);
        }
        Store4<kVector>(r[p], i, n, residual);
      }
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        for (int p = kDigits - 1; p >= 0; --p) {
          if (!quad.has(p, c)) continue;
          const size_t i = quad.element(p) + c;
          numbers[c] =
              3 * numbers[c] + QuantizeDigit<kZeroNonFinite>(
                                   grad[i], threshold, i, residual[i], tally);
        }
      }
    }
    StoreQuad(numbers, quad, q, payload);
  }
}

static_assert(kBatchTile % kRadixBlock == 0, "a tile has whole blocks");

struct RadixEncodeTile {
  using Counts = Tally;
  static constexpr unsigned kBlocks = kLeastBlocks;
  template <bool kVector, bool kZeroNonFinite>
  static __device__ void Encode(const EncodeBatch&, const Tile& tile,
                                Tally& tally) {
    const size_t rest = tile.n % kRadixBlock;
    const size_t num_quads = tile.n / kRadixBlock * kQuadsPerBlock +
                             ((rest + kRadixDigits - 1) / kRadixDigits + 3) / 4;
    RadixEncodePart<kVector, kZeroNonFinite>(
        static_cast<const float*>(tile.grad) + tile.begin,
        tile.residual + tile.begin, tile.n, tile.span->threshold,
        tile.codes + tile.begin / kRadixDigits, num_quads, threadIdx.x,
        blockDim.x, tally);
  }
};

}  // namespace telegrad::kernels::cuda
