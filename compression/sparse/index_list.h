#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "absl/status/status.h"

// Ascending indices below n, with or without a sign each, in few bytes. A word
// here is index << kSignBits | sign, kSignBits 0 or 1. Bytes:
//   gaps     per index its distance from the one before (from -1) less 1,
//            << kSignBits | sign, in an integer of 8 or 16 bits. All bits set
//            is an escape: as many elements as the largest gap, plus one, are
//            left out.
//   bitmap   ceil(n / 8) bytes, bit i % 8 of byte i / 8 set where i is listed;
//            then, with signs, ceil(count / 8) bytes of them in the same order.
namespace telegrad {

enum class IndexFormat : uint8_t { kGaps8 = 0, kGaps16 = 1, kBitmap = 2 };

struct IndexListSize {
  IndexFormat format = IndexFormat::kBitmap;
  size_t num_bytes = 0;
};

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

template <typename Gap, int kSignBits, typename Visit>
void ForEachGap(std::span<const uint8_t> bytes, Visit visit) {
  size_t next = 0;
  for (size_t i = 0; i < bytes.size() / sizeof(Gap); ++i) {
    const Gap gap = GapAt<Gap>(bytes, i);
    if (gap == kEscape<Gap>) {
      next += kGapLimit<Gap, kSignBits>;
      continue;
    }
    next += gap >> kSignBits;
    visit(next, kSignBits != 0 && (gap & 1) != 0);
    ++next;
  }
}

template <int kSignBits, typename Visit>
void ForEachBit(std::span<const uint8_t> bytes, size_t n, Visit visit) {
  const size_t map_bytes = (n + 7) / 8;
  const uint8_t* signs = bytes.data() + map_bytes;
  size_t ordinal = 0;
  for (size_t at = 0; at < map_bytes; at += 8) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at,
                map_bytes - at < 8 ? map_bytes - at : 8);
    for (; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<size_t>(std::countr_zero(bits));
      bool is_negative = false;
      if constexpr (kSignBits != 0) {
        is_negative = (signs[ordinal / 8] >> ordinal % 8 & 1) != 0;
        ++ordinal;
      }
      visit(8 * at + bit, is_negative);
    }
  }
}

}  // namespace internal

// visit(index, is_negative), in ascending order, of a list that
// ValidateIndexList has passed.
template <int kSignBits, typename Visit>
void ForEachIndex(IndexFormat format, std::span<const uint8_t> bytes, size_t n,
                  Visit visit) {
  switch (format) {
    case IndexFormat::kGaps8:
      return internal::ForEachGap<uint8_t, kSignBits>(bytes, visit);
    case IndexFormat::kGaps16:
      return internal::ForEachGap<uint16_t, kSignBits>(bytes, visit);
    case IndexFormat::kBitmap:
      return internal::ForEachBit<kSignBits>(bytes, n, visit);
  }
}

}  // namespace telegrad
