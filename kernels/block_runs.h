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
  const size_t per_byte = 8 / bits;
  const uint32_t mask = (1u << bits) - 1;
  const uint32_t shifted = (static_cast<uint32_t>(code) & mask)
                           << static_cast<uint32_t>(i % per_byte) * bits;
  codes[i / per_byte] = static_cast<uint8_t>(codes[i / per_byte] | shifted);
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

inline void QuantizeRun(const float* grad, float* residual, size_t from,
                        size_t to, const BlockScale& scale, uint32_t levels,
                        uint32_t bits, NonFinite nonfinite, uint8_t* codes,
                        EncodeStats* stats) {
  ClearCodes(from, to, bits, codes);
  for (size_t i = from; i < to; ++i) {
    float v = residual[i] + grad[i];
    if (nonfinite == NonFinite::kZero && !IsFiniteFloat(v)) {
      CountNonFinite(i, stats);
      v = residual[i] + 0.0f;
    }
    const int32_t code =
        QuantizeOne(scale.scale, scale.inverse, static_cast<float>(levels), v);
    residual[i] = v;
    stats->num_nonzero += code != 0;
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

inline void DecodeRun(const uint8_t* codes, size_t from, size_t to,
                      uint32_t bits, float scale, bool natural, bool add,
                      float* out) {
  for (size_t i = from; i < to; ++i) {
    const int32_t code = CodeAt(codes, i, bits);
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
    const int32_t sum = SumAt(frames, num_frames, i, bits);
    out[i] = static_cast<float>(sum) * quantum;
  }
}

}  // namespace telegrad::kernels::reference
