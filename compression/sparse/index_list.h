#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "absl/status/status.h"
#include "kernels/sparse_list.h"

// Ascending indices below n, with or without a sign each, in few bytes:
// kernels/sparse_list.h has the forms. A word here is index << kSignBits |
// sign, kSignBits 0 or 1.
namespace telegrad {

using kernels::IndexFormat;
using kernels::IndexListSize;

// The smallest form of `words`.
template <int kSignBits>
IndexListSize SmallestIndexList(std::span<const uint32_t> words, size_t n);

// No list of `count` indices is larger.
template <int kSignBits>
constexpr size_t MaxIndexListBytes(size_t n, size_t count) {
  return (n + 7) / 8 + (kSignBits != 0 ? (count + 7) / 8 : 0);
}

// Writes the bytes that SmallestIndexList counted.
template <int kSignBits>
void WriteIndexList(IndexFormat format, std::span<const uint32_t> words,
                    size_t n, uint8_t* out);

// OK when `bytes` is a list of `count` indices, and nothing else, in a format
// that exists: what ForEachIndex needs.
template <int kSignBits>
absl::Status ValidateIndexList(uint8_t format, std::span<const uint8_t> bytes,
                               size_t count, size_t n);

namespace internal {

template <typename Gap>
constexpr Gap kEscape = std::numeric_limits<Gap>::max();
// Gaps below this have a code; an escape leaves out this many elements.
template <typename Gap, int kSignBits>
constexpr size_t kGapLimit = kEscape<Gap> >> kSignBits;

template <typename Gap>
Gap GapAt(std::span<const uint8_t> bytes, size_t i) {
  Gap gap;
  std::memcpy(&gap, bytes.data() + i * sizeof(Gap), sizeof(Gap));
  return gap;
}

// Words are found in blocks of so many, without a branch that a gap decides: of
// sparse codes none can be foretold.
constexpr size_t kBlock = 256;

template <typename Gap, int kSignBits, typename Visit>
void ForEachGapBlock(std::span<const uint8_t> bytes, Visit visit) {
  std::array<uint32_t, kBlock> words;
  const size_t num_gaps = bytes.size() / sizeof(Gap);
  size_t next = 0;
  for (size_t begin = 0; begin < num_gaps; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, num_gaps);
    size_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      const Gap gap = GapAt<Gap>(bytes, i);
      const size_t is_index = gap == kEscape<Gap> ? 0 : 1;
      words[count] = static_cast<uint32_t>((next << kSignBits) + gap);
      count += is_index;
      next += (size_t{gap} >> kSignBits) + is_index;  // an escape: kGapLimit
    }
    visit(std::span<const uint32_t>(words.data(), count));
  }
}

template <int kSignBits, typename Visit>
void ForEachBitBlock(std::span<const uint8_t> bytes, size_t n, Visit visit) {
  std::array<uint32_t, kBlock> words;
  const size_t map_bytes = (n + 7) / 8;
  const uint8_t* signs = bytes.data() + map_bytes;
  size_t ordinal = 0;
  size_t count = 0;
  for (size_t at = 0; at < map_bytes; at += 8) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, std::min<size_t>(map_bytes - at, 8));
    for (; bits != 0; bits &= bits - 1) {
      size_t word = 8 * at + static_cast<size_t>(std::countr_zero(bits));
      if constexpr (kSignBits != 0) {
        word = word << 1 | (signs[ordinal / 8] >> ordinal % 8 & 1);
        ++ordinal;
      }
      words[count++] = static_cast<uint32_t>(word);
    }
    if (count <= kBlock - 64) continue;
    visit(std::span<const uint32_t>(words.data(), count));
    count = 0;
  }
  visit(std::span<const uint32_t>(words.data(), count));
}

}  // namespace internal

// visit(words) of a list that ValidateIndexList has passed, some hundred words
// at a time, in ascending order.
template <int kSignBits, typename Visit>
void ForEachIndexBlock(IndexFormat format, std::span<const uint8_t> bytes,
                       size_t n, Visit visit) {
  switch (format) {
    case IndexFormat::kGaps8:
      return internal::ForEachGapBlock<uint8_t, kSignBits>(bytes, visit);
    case IndexFormat::kGaps16:
      return internal::ForEachGapBlock<uint16_t, kSignBits>(bytes, visit);
    case IndexFormat::kBitmap:
      return internal::ForEachBitBlock<kSignBits>(bytes, n, visit);
  }
}

}  // namespace telegrad
