#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace telegrad::testing {

// Equal bits; NaN equals NaN, as devices differ in its payload.
inline bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

}  // namespace telegrad::testing
