#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace telegrad {

// CRC-32C (Castagnoli, RFC 3720 B.4) of `size` bytes, continuing `crc` (0 at
// the start), by the fastest of the variants.
uint32_t Crc32c(const void* data, size_t size, uint32_t crc = 0);

// The CRC of two pieces of bytes, one behind the other, from what each has
// alone; the second has `second_size` bytes.
uint32_t Crc32cCombine(uint32_t first, uint32_t second, size_t second_size);

// What this CPU can do, the fastest first; the last is a table, which all can.
// For tests.
struct Crc32cVariant {
  const char* name;
  // The register, not inverted, after `size` bytes.
  uint32_t (*advance)(const unsigned char* data, size_t size, uint32_t crc);
};
std::span<const Crc32cVariant> Crc32cVariants();

}  // namespace telegrad
