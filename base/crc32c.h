#pragma once

#include <cstddef>
#include <cstdint>

namespace telegrad {

// CRC-32C (Castagnoli, RFC 3720 B.4) of `size` bytes, continuing `crc` (0 at
// the start). The CPU's instruction where it has one, else a table.
uint32_t Crc32c(const void* data, size_t size, uint32_t crc = 0);

// Of two pieces of bytes, one behind the other, from what each has alone; the
// second has `second_size` bytes.
uint32_t Crc32cCombine(uint32_t first, uint32_t second, size_t second_size);

// The table variant, for tests and for machines without the instruction.
uint32_t Crc32cPortable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace telegrad
