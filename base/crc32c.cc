#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace telegrad {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, reflected

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    }
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

// Polynomials modulo the CRC's, x^31 in the lowest bit.
constexpr uint32_t kOne = uint32_t{1} << 31;

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b >> 1) ^ ((b & 1) ? kPolynomial : 0);
  }
  return product;
}

// x^(2^k)
constexpr auto kPowersOfX = [] {
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

#if defined(__x86_64__)

// Three streams hide the three-cycle latency of the instruction; their results
// are joined by advancing the first two over the bytes that follow them.
constexpr size_t kStreamBytes = 1024;
constexpr size_t kLineBytes = 64;
constexpr size_t kAheadBytes = 6 * kStreamBytes;  // past the end does no harm

// Advances a CRC register over `kStreamBytes` zero bytes, one table per byte
// of the register.
using ZeroTables = std::array<std::array<uint32_t, 256>, 4>;

constexpr ZeroTables kZeros = [] {
  const uint32_t power = PowerOfX(8 * kStreamBytes);
  ZeroTables tables{};
  for (int byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      tables[byte][value] = Multiply(power, value << (8 * byte));
    }
  }
  return tables;
}();

uint32_t AdvanceOverStream(uint32_t crc) {
  return kZeros[0][crc & 0xFF] ^ kZeros[1][crc >> 8 & 0xFF] ^
         kZeros[2][crc >> 16 & 0xFF] ^ kZeros[3][crc >> 24];
}

uint64_t Load64(const unsigned char* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(
    const unsigned char* data, size_t size, uint32_t register_value) {
  uint64_t a = register_value;
  while (size >= 3 * kStreamBytes) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t line = 0; line < kStreamBytes; line += kLineBytes) {
      // Streams are too short for the hardware to see where they lead.
      for (size_t s = 0; s < 3; ++s) {
        _mm_prefetch(data + kAheadBytes + s * kStreamBytes + line, _MM_HINT_T0);
      }
      for (size_t i = line; i < line + kLineBytes; i += 8) {
        a = _mm_crc32_u64(a, Load64(data + i));
        b = _mm_crc32_u64(b, Load64(data + kStreamBytes + i));
        c = _mm_crc32_u64(c, Load64(data + 2 * kStreamBytes + i));
      }
    }
    a = AdvanceOverStream(static_cast<uint32_t>(a)) ^ b;
    a = AdvanceOverStream(static_cast<uint32_t>(a)) ^ c;
    data += 3 * kStreamBytes;
    size -= 3 * kStreamBytes;
  }
  for (; size >= 8; size -= 8, data += 8) a = _mm_crc32_u64(a, Load64(data));
  uint32_t crc = static_cast<uint32_t>(a);
  for (; size > 0; --size, ++data) crc = _mm_crc32_u8(crc, *data);
  return crc;
}

#endif

}  // namespace

uint32_t Crc32cPortable(const void* data, size_t size, uint32_t crc) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (size_t i = 0; i < size; ++i) {
    crc = (crc >> 8) ^ kTable[(crc ^ bytes[i]) & 0xFF];
  }
  return ~crc;
}

uint32_t Crc32c(const void* data, size_t size, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return ~Crc32cSse42(static_cast<const unsigned char*>(data), size, ~crc);
  }
#endif
  return Crc32cPortable(data, size, crc);
}

uint32_t Crc32cCombine(uint32_t first, uint32_t second, size_t second_size) {
  return Multiply(PowerOfX(8 * uint64_t{second_size}), first) ^ second;
}

}  // namespace telegrad
