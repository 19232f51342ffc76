#pragma once

#include <cstddef>
#include <cstdint>

namespace telegrad::kernels::reference {

constexpr uint32_t kZeroCode = 0b00;
constexpr uint32_t kNegativeCode = 0b10;
constexpr uint32_t kPositiveCode = 0b11;

// The code of element i, as 1, -1 or 0.
inline int32_t CodeAt(const uint8_t* codes, size_t i) {
  const uint32_t code = (codes[i / 4] >> (6 - 2 * (i % 4))) & 3u;
  return code == kPositiveCode ? 1 : code == kNegativeCode ? -1 : 0;
}

// Sets the code of element i in a byte that was 0 before element i - i % 4.
inline void PutCode(uint32_t code, size_t i, uint8_t* codes) {
  codes[i / 4] =
      static_cast<uint8_t>(codes[i / 4] | (code << (6 - 2 * (i % 4))));
}

}  // namespace telegrad::kernels::reference
