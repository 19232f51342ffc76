#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sign.h"

namespace telegrad {

// Whether the bits behind element n - 1 are 0. bits: SignBytes(n).
inline bool AreUnusedBitsZero(const uint8_t* bits, size_t n) {
  const size_t end = 8 * kernels::SignBytes(n);
  for (size_t i = n; i < end; ++i) {
    if ((bits[i / 8] >> (7 - i % 8) & 1) != 0) return false;
  }
  return true;
}

}  // namespace telegrad
