#include "base/crc32c_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>
#include <cstring>

#include "base/crc32c_polynomial.h"

#define TELEGRAD_SSE42 __attribute__((target("sse4.2")))
#define TELEGRAD_FOLDING \
  __attribute__((target("avx2,pclmul,vpclmulqdq,sse4.2")))

namespace telegrad::crc32c {
namespace {

constexpr size_t kLineBytes = 64;

uint64_t Load64(const unsigned char* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

TELEGRAD_SSE42 uint32_t Short(const unsigned char* data, size_t size,
                              uint64_t crc) {
  for (; size >= 8; size -= 8, data += 8)
    crc = _mm_crc32_u64(crc, Load64(data));
  auto end = static_cast<uint32_t>(crc);
  for (; size > 0; --size, ++data) end = _mm_crc32_u8(end, *data);
  return end;
}

// Three streams hide the three-cycle latency of the instruction; their results
// are joined by advancing the first two over the bytes that follow them.
constexpr size_t kStreamBytes = 1024;
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

// A carry-less product of polynomials whose highest power is in the lowest bit
// is one power of x short; what moves a register in a low half of 64 bits over
// n bits is therefore x^(n - 33), in 32 bits.
template <size_t kBits>
constexpr uint32_t kMover = PowerOfX(kBits - 33);

TELEGRAD_FOLDING uint32_t Advance(uint64_t crc, uint32_t mover) {
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)),
                           _mm_cvtsi32_si128(static_cast<int>(mover)), 0);
  return static_cast<uint32_t>(
      _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
}

// 128 bits' halves move over `bits`: the low one, which comes first, over 64
// more.
template <size_t kBits>
TELEGRAD_FOLDING __m128i Movers() {
  return _mm_set_epi64x(kMover<kBits>, kMover<kBits + 64>);
}

TELEGRAD_FOLDING __m128i Fold(__m128i sum, __m128i movers, __m128i next) {
  return _mm_xor_si128(next,
                       _mm_xor_si128(_mm_clmulepi64_si128(sum, movers, 0x00),
                                     _mm_clmulepi64_si128(sum, movers, 0x11)));
}

// Four vectors, which are folded into the four that follow.
struct Folded {
  static constexpr size_t kBytes = 128;

  TELEGRAD_FOLDING Folded(const unsigned char* data, uint32_t crc)
      : movers(_mm256_broadcastsi128_si256(Movers<8 * kBytes>())) {
    for (size_t i = 0; i < 4; ++i) sums[i] = Load(data, i);
    sums[0] = _mm256_xor_si256(sums[0], _mm256_set_epi64x(0, 0, 0, crc));
  }
  TELEGRAD_FOLDING static __m256i Load(const unsigned char* data, size_t i) {
    return _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(data + sizeof(__m256i) * i));
  }
  TELEGRAD_FOLDING void Add(const unsigned char* data) {
    for (size_t i = 0; i < 4; ++i) {
      sums[i] = _mm256_xor_si256(
          Load(data, i),
          _mm256_xor_si256(_mm256_clmulepi64_epi128(sums[i], movers, 0x00),
                           _mm256_clmulepi64_epi128(sums[i], movers, 0x11)));
    }
  }
  TELEGRAD_FOLDING uint32_t Crc() const {
    const __m128i movers_by_one = Movers<128>();
    __m128i all = _mm_setzero_si128();
    for (const __m256i& sum : sums) {
      all = Fold(all, movers_by_one, _mm256_castsi256_si128(sum));
      all = Fold(all, movers_by_one, _mm256_extracti128_si256(sum, 1));
    }
    uint64_t crc =
        _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(all)));
    crc = _mm_crc32_u64(crc, static_cast<uint64_t>(_mm_extract_epi64(all, 1)));
    return static_cast<uint32_t>(crc);
  }

  __m256i sums[4];
  __m256i movers;
};

// A block's first part is folded; behind it come three streams for the
// instruction, which together have nearly as many bytes.
constexpr size_t kTurns = 64;
constexpr size_t kWordsPerTurn = 5;  // each stream's words
constexpr size_t kFoldedBytes = kTurns * Folded::kBytes;
constexpr size_t kPartBytes = kTurns * kWordsPerTurn * 8;
constexpr size_t kBlockBytes = kFoldedBytes + 3 * kPartBytes;
// In its turns a block asks for the next one, or what it lacks of the end.
constexpr size_t kAheadPerTurn = 4 * kLineBytes;
static_assert(kTurns * kAheadPerTurn >= kBlockBytes);

TELEGRAD_FOLDING uint32_t Block(const unsigned char* data, uint32_t crc) {
  Folded folded(data, crc);
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  const unsigned char* part = data + kFoldedBytes;
  const unsigned char* const next = data + kBlockBytes;
  for (size_t turn = 0; turn < kTurns; ++turn) {
    const unsigned char* const here = data + turn * Folded::kBytes;
    if (turn > 0) folded.Add(here);
    for (size_t line = 0; line < kAheadPerTurn; line += kLineBytes) {
      _mm_prefetch(next + turn * kAheadPerTurn + line, _MM_HINT_T0);
    }
    for (size_t i = 0; i < kWordsPerTurn; ++i, part += 8) {
      a = _mm_crc32_u64(a, Load64(part));
      b = _mm_crc32_u64(b, Load64(part + kPartBytes));
      c = _mm_crc32_u64(c, Load64(part + 2 * kPartBytes));
    }
  }
  constexpr size_t kPartBits = 8 * kPartBytes;
  return Advance(folded.Crc(), kMover<3 * kPartBits>) ^
         Advance(a, kMover<2 * kPartBits>) ^ Advance(b, kMover<kPartBits>) ^
         static_cast<uint32_t>(c);
}

}  // namespace

TELEGRAD_SSE42 uint32_t ByInstruction(const unsigned char* data, size_t size,
                                      uint32_t crc) {
  uint64_t a = crc;
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
  return Short(data, size, a);
}

TELEGRAD_FOLDING uint32_t ByFolding(const unsigned char* data, size_t size,
                                    uint32_t crc) {
  for (; size >= kBlockBytes; size -= kBlockBytes, data += kBlockBytes) {
    crc = Block(data, crc);
  }
  if (size >= 2 * Folded::kBytes) {
    Folded folded(data, crc);
    for (data += Folded::kBytes, size -= Folded::kBytes; size >= Folded::kBytes;
         data += Folded::kBytes, size -= Folded::kBytes) {
      folded.Add(data);
    }
    crc = folded.Crc();
  }
  return Short(data, size, crc);
}

}  // namespace telegrad::crc32c

#endif
