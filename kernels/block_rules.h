#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/block.h"

// The rules of kernels/block.h for one element, for processors of every kind:
// C++17 and CUDA.
namespace telegrad::kernels {

TELEGRAD_HOST_DEVICE inline uint32_t FloatBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
TELEGRAD_HOST_DEVICE inline float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
TELEGRAD_HOST_DEVICE inline uint32_t MagnitudeBits(float value) {
  return FloatBits(value) & 0x7FFFFFFFu;
}
TELEGRAD_HOST_DEVICE inline bool IsFiniteFloat(float value) {
  return MagnitudeBits(value) < 0x7F800000u;
}

// 2^exponent, -126 to 127.
TELEGRAD_HOST_DEVICE inline float PowerOfTwo(int32_t exponent) {
  return FloatOf(static_cast<uint32_t>(exponent + 127) << 23);
}

TELEGRAD_HOST_DEVICE inline float LimitOf(const DitherLimit& limit) {
  if (limit.mean_square == nullptr) return limit.most;
  const double clipped = limit.clip * sqrt(*limit.mean_square);
  return clipped < static_cast<double>(limit.most) ? static_cast<float>(clipped)
                                                   : limit.most;
}

struct BlockScale {
  float scale;
  float inverse;
  float maximum;
};

// `maximum` is that of the finite elements.
TELEGRAD_HOST_DEVICE inline BlockScale ScaleOf(float maximum, float limit,
                                               const BlockFormat& format) {
  const float m = maximum < limit ? maximum : limit;
  if (m < kLeastMaximum) return {0.0f, 0.0f, 0.0f};
  if (format.natural) {
    const float scale = m * PowerOfTwo(1 - static_cast<int32_t>(format.levels));
    return {scale, 1.0f / scale, m};
  }
  const float levels = static_cast<float>(format.levels);
  return {m / levels, levels / m, m};
}

// What is added to a block's sum of squares.
TELEGRAD_HOST_DEVICE inline float SquareOf(float v) {
  if (!IsFiniteFloat(v)) return 0.0f;
  const float magnitude = FloatOf(MagnitudeBits(v));
  return magnitude < kMostForSquare ? v * v : kMostSquare;
}

// The scale of odd codes, from the sum of squares of `count` elements.
TELEGRAD_HOST_DEVICE inline BlockScale OddScaleOf(float sum, size_t count,
                                                  const BlockFormat& format) {
  const float mean = sum / static_cast<float>(count);
  if (mean < kLeastMeanSquare) return {0.0f, 0.0f, 0.0f};
  const float exact =
      (format.bits == 2 ? kScaleOfFour : kScaleOfEight) * sqrtf(mean);
  const float scale = FloatOf((FloatBits(exact) + 0x8000u) & 0xFFFF0000u);
  return {scale, 0.5f / scale, 0.0f};
}

// The scale where a quantum is given.
TELEGRAD_HOST_DEVICE inline BlockScale SharedScaleOf(float quantum,
                                                     uint32_t bits) {
  return {quantum, (IsOdd(bits) ? 0.5f : 1.0f) / quantum, 0.0f};
}
TELEGRAD_HOST_DEVICE inline uint32_t SharedLevels(uint32_t bits) {
  return (1u << (bits - 1)) - (IsOdd(bits) ? 0 : 1);
}

// v -> code; v becomes what was not sent.
TELEGRAD_HOST_DEVICE inline int32_t QuantizeOne(float scale, float inverse,
                                                float levels, bool odd,
                                                float& v) {
  if (!IsFiniteFloat(v)) return 0;
  const float most = odd ? levels - 1.0f : levels;
  const float scaled = v * inverse - (odd ? 0.5f : 0.0f);
  const float clamped = scaled > most      ? most
                        : scaled < -levels ? -levels
                                           : scaled;
  const int32_t code = static_cast<int32_t>(rintf(clamped));
  v = v - static_cast<float>(odd ? 2 * code + 1 : code) * scale;
  return code;
}

TELEGRAD_HOST_DEVICE inline int32_t DitherNatural(float y, uint32_t draw) {
  if (y < 1.0f) return static_cast<float>(draw >> 8) * 0x1p-24f < y;
  const uint32_t bits = FloatBits(y);
  return static_cast<int32_t>(bits >> 23) - 126 +
         ((draw >> 9) < (bits & 0x7FFFFFu));
}

TELEGRAD_HOST_DEVICE inline int32_t DitherOne(float g, const BlockScale& scale,
                                              const BlockFormat& format,
                                              uint32_t draw) {
  if (!IsFiniteFloat(g)) return 0;
  const float magnitude = FloatOf(MagnitudeBits(g));
  const float y =
      (magnitude < scale.maximum ? magnitude : scale.maximum) * scale.inverse;
  const int32_t levels = static_cast<int32_t>(format.levels);
  const int32_t q =
      format.natural
          ? DitherNatural(y, draw)
          : static_cast<int32_t>(y + static_cast<float>(draw >> 8) * 0x1p-24f);
  const int32_t bounded = q < levels ? q : levels;
  return g < 0.0f ? -bounded : bounded;
}

// `code` of a natural format: |code| <= kMaxNaturalLevels; others, which no
// encoder writes, give a finite value, too.
TELEGRAD_HOST_DEVICE inline float NaturalValue(int32_t code, float scale) {
  if (code == 0) return 0.0f;
  const int32_t exponent = (code < 0 ? -code : code) - 1;
  const float value = scale * PowerOfTwo(exponent < 24 ? exponent : 24);
  return code < 0 ? -value : value;
}

// Code i of `bits` = 2 to 8.
TELEGRAD_HOST_DEVICE inline int32_t UnpackCode(const uint8_t* codes, size_t i,
                                               uint32_t bits) {
  const uint8_t* const at = codes + i / 8 * bits + i % 8 * bits / 8;
  const uint32_t shift = static_cast<uint32_t>(i % 8) * bits % 8;
  const uint32_t sign = 1u << (bits - 1);
  uint32_t code = uint32_t{at[0]} >> shift;
  if (shift + bits > 8) code |= uint32_t{at[1]} << (8 - shift);
  code &= 2 * sign - 1;
  return static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign);
}

}  // namespace telegrad::kernels
