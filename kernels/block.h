#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"
#include "kernels/philox.h"
#include "kernels/two_bit.h"

// Block-wise quantisation to a few bits, deterministic and stochastic.
//
// Codes are two's complement numbers of b bits (1 < b < 9; sums: 16 or 32,
// too), element i in bits i*b and up of a little-endian string of bits; unused
// bits of the last byte are 0. A payload is one scale per block of elements,
// then the codes. Even codes say code * scale, have float32 scales, and
// -2^(b-1) never occurs. Odd ones say (2 * code + 1) * scale, so 0 is no level,
// and have bf16 scales (the upper half of a float32).
namespace telegrad::kernels {

struct BlockFormat {
  size_t block = 0;       // elements per scale, a multiple of 64
  uint32_t bits = 8;      // per code: 2, 4 or 8; odd: 2 or 3
  uint32_t levels = 127;  // largest code: 1 to 2^(bits-1) - 1; odd: 2^(bits-1)
  bool natural = false;   // dither only: levels are powers of two
  bool odd = false;       // quantize only: odd codes, a scale of 16 bits
};

// Codes of a shared quantum that have so few bits are odd.
TELEGRAD_HOST_DEVICE constexpr bool IsOdd(uint32_t bits) { return bits < 4; }

constexpr size_t kBlockMultiple = 64;
// Natural levels below 2^-23 of the largest would never be told apart.
constexpr uint32_t kMaxNaturalLevels = 24;
// Block maxima under the least count as 0, those over the most as the most: so
// scales, their inverses and sums of decoded values over workers are finite.
constexpr float kLeastMaximum = 0x1p-100f;
constexpr float kMostMaximum = 0x1p100f;
// Root mean squares whose square is under the least count as 0, elements over
// the most as the most.
constexpr float kLeastMeanSquare = 0x1p-100f;
constexpr float kMostForSquare = 0x1p55f;
constexpr float kMostSquare = kMostForSquare * kMostForSquare;
constexpr size_t kSquareLanes = 128;
// The evenly spaced levels of least squared error, of a Gaussian of variance 1,
// are the odd multiples of these: four levels, eight levels.
constexpr float kScaleOfFour = 0.498f;
constexpr float kScaleOfEight = 0.293f;

TELEGRAD_HOST_DEVICE constexpr size_t NumBlocks(size_t n,
                                                const BlockFormat& format) {
  return (n + format.block - 1) / format.block;
}
constexpr size_t CodeBytes(size_t n, uint32_t bits) {
  return n / 8 * bits + (n % 8 * bits + 7) / 8;
}
TELEGRAD_HOST_DEVICE constexpr size_t ScaleBytes(size_t n,
                                                 const BlockFormat& format) {
  return (format.odd ? 2 : 4) * NumBlocks(n, format);
}
constexpr size_t BlockPayloadBytes(size_t n, const BlockFormat& format) {
  return ScaleBytes(n, format) + CodeBytes(n, format.bits);
}

// Deterministic quantisation with error feedback, in float32 without FMA. With
// v = residual[i] + grad[i] (residual[i] + 0 where that is not finite), per
// block:
//   m = max |v| over the finite v, at most kMostMaximum
//   m < kLeastMaximum: scale 0, inverse 0
//   else:              scale = m / levels, inverse = levels / m
//   q = rint(clamp(v * inverse, -levels, levels)), 0 where v is not finite
//   residual[i] = v - q * scale
// and of odd codes, with k the block's elements:
//   m = sum of v * v over the finite v, |v| at most kMostForSquare, / k
//   m < kLeastMeanSquare: scale 0, inverse 0
//   else:                 scale = kScaleOf... * sqrt(m) to the nearest bf16,
//                         inverse = 0.5 / scale
//   q = rint(clamp(v * inverse - 0.5, -levels, levels - 1)), as above
//   residual[i] = v - (2 * q + 1) * scale
// The sum has 128 lanes: lane l adds elements l, l + 128 ... of the block in
// this order, from 0 on; then for h = 64, 32 ... 1 lane l < h adds lane l + h.
// Counts as num_nonzero codes other than 0; odd: elements of blocks whose scale
// is not 0.
// rint: to nearest, ties to even. Elements whose v is not finite are counted
// (kZero); kPropagate counts nothing and keeps r + g, so NaN and infinities
// stay in the residual and send 0 for ever.
// Shapes: grad, residual [n] f32; payload BlockPayloadBytes(n, format), on a
// GPU aligned to 4. `stats` is added to. Alias: no. Equal bits everywhere.
// Source: CGX (Markov et al., Middleware 2022), LoCo (Xie et al., 2024).
using BlockQuantizeFn = void(const float* grad, float* residual, size_t n,
                             BlockFormat format, NonFinite nonfinite,
                             uint8_t* payload, EncodeStats* stats,
                             Stream stream);

// Quantises with one quantum for all elements, given: scale = quantum, inverse
// = 1 / quantum, levels = 2^(bits-1) - 1 (where IsOdd(bits): 0.5 / quantum and
// 2^(bits-1)), and codes [CodeBytes(n, bits)] alone; all else as in
// BlockQuantizeFn. The quantum and its inverse are positive, finite and not
// denormal.
using SharedQuantizeFn = void(const float* grad, float* residual, size_t n,
                              uint32_t bits, float quantum, NonFinite nonfinite,
                              uint8_t* codes, EncodeStats* stats,
                              Stream stream);

// The largest |g| that dither takes: `most`, or, where mean_square is not null,
// clip times its root if that is less. Where mean_square points to is the
// device's, and is read when the kernel runs.
struct DitherLimit {
  float most = kMostMaximum;  // at most that
  double clip = 0;
  const double* mean_square = nullptr;
};

// Stochastic, unbiased rounding. Per block:
//   m = max |g| over the finite g, at most `limit`
//   x = min(|g|, m), 0 where g is not finite; d = DrawFor(draw, i)
//   linear:  scale = m / levels, inverse = levels / m,
//            q = min(floor(x * inverse + (d >> 8) * 2^-24), levels)
//   natural: scale = m * 2^(1-levels), inverse = 1 / scale, y = x * inverse
//            y < 1:   q = 1 if (d >> 8) * 2^-24 < y, else 0
//            y >= 1:  y = 2^e * (1 + f); q = e + 1, and one more if
//                     (d >> 9) * 2^-23 < f; at most levels
// and the code is q with the sign of g; m < kLeastMaximum: scale 0, codes 0.
// Elements that are not finite are counted (kZero) or not (kPropagate), and
// send 0. i counts from the chunk's first element. Shapes as above.
// Source: QSGD (Alistarh et al., NeurIPS 2017) with the maximum norm; natural
// dithering (Horvath et al., MSML 2022); levels = 1: TernGrad (Wen et al.,
// NeurIPS 2017).
using DitherFn = void(const float* grad, size_t n, BlockFormat format,
                      DitherLimit limit, DrawKey draw, NonFinite nonfinite,
                      uint8_t* payload, EncodeStats* stats, Stream stream);

// out[i] = code * scale, natural: sign * scale * 2^(|code|-1), 0 for code 0;
// or sum[i] = sum[i] + that.
using BlockDecodeFn = void(const uint8_t* payload, size_t n, BlockFormat format,
                           float* out, Stream stream);

// out[i] = code * quantum, or, where `odd` is how many odd codes were added,
// (2 * code + odd) * quantum; or sum[i] = sum[i] + that. Codes and sums of
// codes: 2 to 8, 16 or 32 bits.
using SharedDecodeFn = void(const uint8_t* codes, size_t n, uint32_t bits,
                            uint32_t odd, float quantum, float* out,
                            Stream stream);

// Sums of `num_frames` frames of codes of `bits` (2, 3, 4 or 8), as codes of
// `sum_bits` (2 to 8, 16 or 32), which must hold them. `frames` is the host's.
using SumCodesFn = void(const uint8_t* const* frames, uint32_t num_frames,
                        size_t n, uint32_t bits, uint32_t sum_bits,
                        uint8_t* sum, Stream stream);

// out[i] = float(sum of what the codes say in quanta) * quantum.
using SharedSumDecodeFn = void(const uint8_t* const* frames,
                               uint32_t num_frames, size_t n, uint32_t bits,
                               float quantum, float* out, Stream stream);

struct BlockKernels {
  BlockQuantizeFn* quantize = nullptr;
  SharedQuantizeFn* shared_quantize = nullptr;
  DitherFn* dither = nullptr;
  BlockDecodeFn* decode = nullptr;
  BlockDecodeFn* decode_add = nullptr;
  SharedDecodeFn* shared_decode = nullptr;
  SharedDecodeFn* shared_decode_add = nullptr;
  SumCodesFn* sum_codes = nullptr;
  SharedSumDecodeFn* shared_sum_decode = nullptr;
};

}  // namespace telegrad::kernels
