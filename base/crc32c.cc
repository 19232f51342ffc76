#include "base/crc32c.h"

#include <array>
#include <vector>

#include "base/crc32c_polynomial.h"
#include "base/crc32c_x86.h"

namespace telegrad {
namespace {

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) ? crc32c::kPolynomial : 0);
    }
    table[i] = crc;
  }
  return table;
}();

uint32_t ByTable(const unsigned char* data, size_t size, uint32_t crc) {
  for (size_t i = 0; i < size; ++i) {
    crc = (crc >> 8) ^ kTable[(crc ^ data[i]) & 0xFF];
  }
  return crc;
}

std::vector<Crc32cVariant> FindVariants() {
  std::vector<Crc32cVariant> variants;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    if (__builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("vpclmulqdq")) {
      variants.push_back({"folding", crc32c::ByFolding});
    }
    variants.push_back({"instruction", crc32c::ByInstruction});
  }
#endif
  variants.push_back({"table", ByTable});
  return variants;
}

}  // namespace

std::span<const Crc32cVariant> Crc32cVariants() {
  static const std::vector<Crc32cVariant>& variants =
      *new std::vector<Crc32cVariant>(FindVariants());
  return variants;
}

uint32_t Crc32c(const void* data, size_t size, uint32_t crc) {
  static const auto advance = Crc32cVariants().front().advance;
  return ~advance(static_cast<const unsigned char*>(data), size, ~crc);
}

uint32_t Crc32cCombine(uint32_t first, uint32_t second, size_t second_size) {
  const uint32_t power = crc32c::PowerOfX(8 * uint64_t{second_size});
  return crc32c::Multiply(power, first) ^ second;
}

}  // namespace telegrad
