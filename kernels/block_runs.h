#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/block_rules.h"

// The operations of kernels/block.h on elements [from, to) of an array, for the
// definitions and for what vector code leaves over. `from` is a multiple of 8,
// so that codes begin at a byte; pointers are those of element 0. C++17.
namespace telegrad::kernels::reference {

inline int32_t CodeAt(const uint8_t* codes, size_t i, uint32_t bits) {
  if (bits <= 8) return UnpackCode(codes, i, bits);
  if (bits == 16) {
    int16_t code;
    std::memcpy(&code, codes + 2 * i, sizeof(code));
    return code;
  }
  int32_t code;
  std::memcpy(&code, codes + 4 * i, sizeof(code));
  return code;
}

// Into bits that are 0.
inline void PutCode(int32_t code, size_t i, uint32_t bits, uint8_t* codes) {
  if (bits > 8) {
    std::memcpy(codes + i * (bits / 8), &code, bits / 8);
    return;
  }
  uint8_t* const at = codes + i / 8 * bits + i % 8 * bits / 8;
  const uint32_t mask = (1u << bits) - 1;
  const uint32_t shift = static_cast<uint32_t>(i % 8) * bits % 8;
  const uint32_t shifted = (static_cast<uint32_t>(code) & mask) << shift;
  at[0] = static_cast<uint8_t>(at[0] | shifted);
  if (shift + bits > 8) at[1] = static_cast<uint8_t>(at[1] | shifted >> 8);
}

inline void ClearCodes(size_t from, size_t to, uint32_t bits, uint8_t* codes) {
  std::fill_n(codes + CodeBytes(from, bits), CodeBytes(to - from, bits),
              uint8_t{0});
}

inline void CountNonFinite(size_t i, EncodeStats* stats) {
  ++stats->num_nonfinite;
  if (i < stats->first_nonfinite) stats->first_nonfinite = i;
}

// The largest |v| of the finite v; `residual` may be null.
inline float MaxOfRun(const float* grad, const float* residual, size_t from,
                      size_t to, NonFinite nonfinite) {
  uint32_t most = 0;
  for (size_t i = from; i < to; ++i) {
    float v = grad[i];
    if (residual != nullptr) {
      v = residual[i] + grad[i];
      if (nonfinite == NonFinite::kZero && !IsFiniteFloat(v)) {
        v = residual[i] + 0.0f;
      }
    }
    const uint32_t bits = MagnitudeBits(v);
    if (bits < 0x7F800000u && bits > most) most = bits;
  }
  return FloatOf(most);
}

// The sum of squares that a block's odd codes are scaled by.
inline float SquaresOfRun(const float* grad, const float* residual, size_t from,
                          size_t to, NonFinite nonfinite) {
  float lanes[kSquareLanes] = {};
  for (size_t i = from; i < to; ++i) {
    float v = residual[i] + grad[i];
    if (nonfinite == NonFinite::kZero && !IsFiniteFloat(v)) v = residual[i];
    lanes[(i - from) % kSquareLanes] += SquareOf(v);
  }
  for (size_t h = kSquareLanes / 2; h > 0; h /= 2) {
    for (size_t l = 0; l < h; ++l) lanes[l] += lanes[l + h];
  }
  return lanes[0];
}

// The scale of block b of elements [from, to), which becomes the payload's.
inline BlockScale ScaleOfRun(const float* grad, const float* residual,
                             size_t from, size_t to, const BlockFormat& format,
                             NonFinite nonfinite) {
  if (format.odd) {
    return OddScaleOf(SquaresOfRun(grad, residual, from, to, nonfinite),
                      to - from, format);
  }
  return ScaleOf(MaxOfRun(grad, residual, from, to, nonfinite), kMostMaximum,
                 format);
}

// Scale b of a payload.
inline void PutBlockScale(float scale, size_t b, const BlockFormat& format,
                          uint8_t* payload) {
  const uint32_t bits = FloatBits(scale) >> (format.odd ? 16 : 0);
  std::memcpy(payload + (format.odd ? 2 : 4) * b, &bits, format.odd ? 2 : 4);
}
inline float BlockScaleAt(const uint8_t* payload, size_t b,
                          const BlockFormat& format) {
  uint32_t bits = 0;
  std::memcpy(&bits, payload + (format.odd ? 2 : 4) * b, format.odd ? 2 : 4);
  return FloatOf(bits << (format.odd ? 16 : 0));
}

inline void QuantizeRun(const float* grad, float* residual, size_t from,
                        size_t to, const BlockScale& scale, uint32_t levels,
                        uint32_t bits, bool odd, NonFinite nonfinite,
                        uint8_t* codes, EncodeStats* stats) {
  ClearCodes(from, to, bits, codes);
  for (size_t i = from; i < to; ++i) {
    float v = residual[i] + grad[i];
    if (nonfinite == NonFinite::kZero && !IsFiniteFloat(v)) {
      CountNonFinite(i, stats);
      v = residual[i] + 0.0f;
    }
    const int32_t code = QuantizeOne(scale.scale, scale.inverse,
                                     static_cast<float>(levels), odd, v);
    residual[i] = v;
    stats->num_nonzero += odd ? scale.scale != 0 : code != 0;
    PutCode(code, i, bits, codes);
  }
}

inline void DitherRun(const float* grad, size_t from, size_t to,
                      const BlockScale& scale, const BlockFormat& format,
                      const DrawKey& draw, NonFinite nonfinite, uint8_t* codes,
                      EncodeStats* stats) {
  ClearCodes(from, to, format.bits, codes);
  for (size_t i = from; i < to; ++i) {
    if (nonfinite == NonFinite::kZero && !IsFiniteFloat(grad[i])) {
      CountNonFinite(i, stats);
    }
    const int32_t code = DitherOne(grad[i], scale, format, DrawFor(draw, i));
    stats->num_nonzero += code != 0;
    PutCode(code, i, format.bits, codes);
  }
}

// What a code says in scales, `odd` being how many odd codes were added.
inline int32_t TimesTwo(int32_t code, uint32_t odd) {
  if (odd == 0) return code;
  return static_cast<int32_t>(2 * static_cast<uint32_t>(code) + odd);
}

inline void DecodeRun(const uint8_t* codes, size_t from, size_t to,
                      uint32_t bits, uint32_t odd, float scale, bool natural,
                      bool add, float* out) {
  for (size_t i = from; i < to; ++i) {
    const int32_t code = TimesTwo(CodeAt(codes, i, bits), odd);
    const float value =
        natural ? NaturalValue(code, scale) : static_cast<float>(code) * scale;
    out[i] = add ? out[i] + value : value;
  }
}

inline int32_t SumAt(const uint8_t* const* frames, uint32_t num_frames,
                     size_t i, uint32_t bits) {
  int32_t sum = 0;
  for (uint32_t f = 0; f < num_frames; ++f) sum += CodeAt(frames[f], i, bits);
  return sum;
}

inline void SumRun(const uint8_t* const* frames, uint32_t num_frames,
                   size_t from, size_t to, uint32_t bits, uint32_t sum_bits,
                   uint8_t* sum) {
  ClearCodes(from, to, sum_bits, sum);
  for (size_t i = from; i < to; ++i) {
    PutCode(SumAt(frames, num_frames, i, bits), i, sum_bits, sum);
  }
}

inline void SumDecodeRun(const uint8_t* const* frames, uint32_t num_frames,
                         size_t from, size_t to, uint32_t bits, float quantum,
                         float* out) {
  for (size_t i = from; i < to; ++i) {
    const int32_t sum = TimesTwo(SumAt(frames, num_frames, i, bits),
                                 IsOdd(bits) ? num_frames : 0);
    out[i] = static_cast<float>(sum) * quantum;
  }
}

}  // namespace telegrad::kernels::reference
