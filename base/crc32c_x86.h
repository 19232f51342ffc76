#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)

// CRC registers (not inverted) after `size` bytes, by instructions of x86.
namespace telegrad::crc32c {

// With SSE 4.2.
uint32_t ByInstruction(const unsigned char* data, size_t size, uint32_t crc);

// With AVX2 and VPCLMULQDQ as well: half of the bytes are folded by carry-less
// products (V. Gopal et al., "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction", Intel 2009) while the instruction takes the
// others, as they use different units of a core.
uint32_t ByFolding(const unsigned char* data, size_t size, uint32_t crc);

}  // namespace telegrad::crc32c

#endif
