#pragma once

#include <cstdint>
#include <cstring>

// Exact conversions to float32, so that an encoder takes a gradient of any of
// these formats.
namespace telegrad::kernels::reference {

inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

constexpr uint32_t kInfinity = 0x7F800000;

struct OfFloat32 {
  using Element = float;
  static float Float(float value) { return value; }
};

struct OfFp16 {
  using Element = uint16_t;
  static float Float(uint32_t code) {
    const uint32_t sign = (code & 0x8000u) << 16;
    const uint32_t exponent = code >> 10 & 31u;
    const uint32_t mantissa = code & 0x3FFu;
    if (exponent == 31) return FloatOf(sign | kInfinity | mantissa << 13);
    if (exponent == 0) {
      const float value = static_cast<float>(mantissa) * 0x1p-24f;
      return FloatOf(sign | BitsOf(value));
    }
    return FloatOf(sign | (exponent + 112) << 23 | mantissa << 13);
  }
};

struct OfBf16 {
  using Element = uint16_t;
  static float Float(uint32_t code) { return FloatOf(code << 16); }
};

}  // namespace telegrad::kernels::reference
