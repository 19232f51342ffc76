#include "compression/sparse/index_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

using internal::GapAt;
using internal::kEscape;
using internal::kGapLimit;

template <typename Gap, int kSignBits>
void WriteGaps(std::span<const uint32_t> words, uint8_t* out) {
  constexpr size_t kLimit = kGapLimit<Gap, kSignBits>;
  const auto put = [&out](size_t value) {
    const auto gap = static_cast<Gap>(value);
    std::memcpy(out, &gap, sizeof(gap));
    out += sizeof(gap);
  };
  size_t next = 0;
  for (const uint32_t word : words) {
    size_t gap = (word >> kSignBits) - next;
    // One escape is common enough not to be foretold, two are not.
    put(kEscape<Gap>);
    out -= gap < kLimit ? sizeof(Gap) : 0;
    gap -= gap < kLimit ? 0 : kLimit;
    for (; gap >= kLimit; gap -= kLimit) put(kEscape<Gap>);
    put(gap << kSignBits | (word & kSignBits));
    next = (word >> kSignBits) + size_t{1};
  }
}

template <int kSignBits>
void WriteBitmap(std::span<const uint32_t> words, size_t n, uint8_t* out) {
  std::memset(out, 0, MaxIndexListBytes<kSignBits>(n, words.size()));
  uint8_t* signs = out + (n + 7) / 8;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t index = words[i] >> kSignBits;
    out[index / 8] |= static_cast<uint8_t>(1u << index % 8);
    if constexpr (kSignBits != 0) {
      signs[i / 8] |= static_cast<uint8_t>((words[i] & 1) << i % 8);
    }
  }
}

absl::Status WrongList(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("list of indices: ", why));
}

// Validates gaps: sums in which no branch depends on one, made in blocks that
// 32 bits can hold.
template <typename Gap, int kSignBits>
absl::Status ValidateGaps(std::span<const uint8_t> bytes, size_t count,
                          size_t n) {
  constexpr size_t kBlock = size_t{1} << 12;
  if (bytes.size() % sizeof(Gap) != 0) return WrongList("a torn gap");
  const size_t num_gaps = bytes.size() / sizeof(Gap);
  size_t end_index = 0;  // one past the last index that the list tells of
  size_t found = 0;
  bool has_wrong_code = false;
  for (size_t begin = 0; begin < num_gaps; begin += kBlock) {
    uint32_t skipped = 0;
    uint32_t indices = 0;
    uint32_t wrong_codes = 0;
    for (size_t i = begin; i < std::min(begin + kBlock, num_gaps); ++i) {
      const Gap gap = GapAt<Gap>(bytes, i);
      skipped += static_cast<uint32_t>(gap) >> kSignBits;
      indices += gap != kEscape<Gap> ? 1 : 0;
      wrong_codes += kSignBits != 0 && gap == kEscape<Gap> - 1 ? 1 : 0;
    }
    end_index += size_t{skipped} + indices;
    found += indices;
    has_wrong_code = has_wrong_code || wrong_codes != 0;
  }
  if (has_wrong_code) return WrongList("a code that never occurs");
  if (end_index > n) return WrongList("an index out of range");
  if (num_gaps > 0 && GapAt<Gap>(bytes, num_gaps - 1) == kEscape<Gap>) {
    return WrongList("an escape at the end");
  }
  if (found != count) {
    return WrongList(absl::StrCat(found, " indices, not ", count));
  }
  return absl::OkStatus();
}

bool IsZeroBehind(std::span<const uint8_t> bytes, size_t num_bits) {
  return num_bits % 8 == 0 || bytes[num_bits / 8] >> num_bits % 8 == 0;
}

template <int kSignBits>
absl::Status ValidateBitmap(std::span<const uint8_t> bytes, size_t count,
                            size_t n) {
  const size_t map_bytes = (n + 7) / 8;
  if (count > n || bytes.size() != MaxIndexListBytes<kSignBits>(n, count)) {
    return WrongList(absl::StrCat("a bitmap of ", bytes.size(), " bytes"));
  }
  size_t found = 0;
  for (size_t at = 0; at < map_bytes; at += 8) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, std::min<size_t>(map_bytes - at, 8));
    found += static_cast<size_t>(std::popcount(bits));
  }
  if (found != count) {
    return WrongList(absl::StrCat(found, " bits, not ", count));
  }
  if (!IsZeroBehind(bytes.first(map_bytes), n) ||
      (kSignBits != 0 && !IsZeroBehind(bytes.subspan(map_bytes), count))) {
    return WrongList("bits behind the end");
  }
  return absl::OkStatus();
}

}  // namespace

template <int kSignBits>
IndexListSize SmallestIndexList(std::span<const uint32_t> words, size_t n) {
  size_t num_gaps8 = words.size();
  size_t num_gaps16 = words.size();
  uint32_t next = 0;
  for (const uint32_t word : words) {
    const uint32_t gap = (word >> kSignBits) - next;
    num_gaps8 += gap / kGapLimit<uint8_t, kSignBits>;
    num_gaps16 += gap / kGapLimit<uint16_t, kSignBits>;
    next = (word >> kSignBits) + 1;
  }
  return kernels::SmallestList(num_gaps8, num_gaps16,
                               MaxIndexListBytes<kSignBits>(n, words.size()));
}

template <int kSignBits>
void WriteIndexList(IndexFormat format, std::span<const uint32_t> words,
                    size_t n, uint8_t* out) {
  switch (format) {
    case IndexFormat::kGaps8:
      return WriteGaps<uint8_t, kSignBits>(words, out);
    case IndexFormat::kGaps16:
      return WriteGaps<uint16_t, kSignBits>(words, out);
    case IndexFormat::kBitmap:
      return WriteBitmap<kSignBits>(words, n, out);
  }
}

template <int kSignBits>
absl::Status ValidateIndexList(uint8_t format, std::span<const uint8_t> bytes,
                               size_t count, size_t n) {
  switch (static_cast<IndexFormat>(format)) {
    case IndexFormat::kGaps8:
      return ValidateGaps<uint8_t, kSignBits>(bytes, count, n);
    case IndexFormat::kGaps16:
      return ValidateGaps<uint16_t, kSignBits>(bytes, count, n);
    case IndexFormat::kBitmap:
      return ValidateBitmap<kSignBits>(bytes, count, n);
  }
  return WrongList(absl::StrCat("format ", format));
}

template IndexListSize SmallestIndexList<0>(std::span<const uint32_t>, size_t);
template IndexListSize SmallestIndexList<1>(std::span<const uint32_t>, size_t);
template void WriteIndexList<0>(IndexFormat, std::span<const uint32_t>, size_t,
                                uint8_t*);
template void WriteIndexList<1>(IndexFormat, std::span<const uint32_t>, size_t,
                                uint8_t*);
template absl::Status ValidateIndexList<0>(uint8_t, std::span<const uint8_t>,
                                           size_t, size_t);
template absl::Status ValidateIndexList<1>(uint8_t, std::span<const uint8_t>,
                                           size_t, size_t);

}  // namespace telegrad
