#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Polynomials over GF(2) modulo that of CRC-32C, x^31 in the lowest bit.
namespace telegrad::crc32c {

inline constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, reflected
inline constexpr uint32_t kOne = uint32_t{1} << 31;

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b >> 1) ^ ((b & 1) ? kPolynomial : 0);
  }
  return product;
}

// x^(2^k)
inline constexpr auto kPowersOfX = [] {
  std::array<uint32_t, 64> powers{};
  powers[0] = kOne >> 1;
  for (size_t k = 1; k < powers.size(); ++k) {
    powers[k] = Multiply(powers[k - 1], powers[k - 1]);
  }
  return powers;
}();

// x^n: what moves a CRC register over n zero bits.
constexpr uint32_t PowerOfX(uint64_t n) {
  uint32_t product = kOne;
  for (size_t k = 0; n > 0; ++k, n >>= 1) {
    if (n & 1) product = Multiply(kPowersOfX[k], product);
  }
  return product;
}

}  // namespace telegrad::crc32c
