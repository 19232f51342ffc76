#pragma once

#include <cuda_runtime.h>

#include <cmath>

// Half precision by arithmetic, unlike that of kernels/, which works on bits.

struct __half {
  unsigned short bits;
};

inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }

inline float __half2float(__half value) {
  const int sign = value.bits >> 15;
  const int exponent = value.bits >> 10 & 31;
  const int mantissa = value.bits & 1023;
  if (exponent == 31 && mantissa != 0) {
    // The payload goes on, as in hardware.
    return __uint_as_float(static_cast<unsigned>(sign) << 31 | 0x7F800000u |
                           static_cast<unsigned>(mantissa) << 13);
  }
  const float magnitude =
      exponent == 31 ? INFINITY
      : exponent == 0
          ? std::ldexp(static_cast<float>(mantissa), -24)
          : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return sign != 0 ? -magnitude : magnitude;
}

// To the nearest, ties to even; beyond the largest: infinite.
inline __half __float2half_rn(float value) {
  const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return {0x7FFF};
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return {static_cast<unsigned short>(sign)};
  if (magnitude >= 65520.0f) {
    return {static_cast<unsigned short>(sign | 0x7C00u)};
  }
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  // Of the last bit that a half of this size has; -24 where it is subnormal.
  const int last = std::max(exponent - 11, -24);
  const auto steps =
      static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, -last)));
  // 1024 steps and more carry into the exponent's field by themselves.
  const unsigned field = static_cast<unsigned>(last + 24) << 10;
  return {static_cast<unsigned short>(sign | (field + steps))};
}
