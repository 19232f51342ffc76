#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/host_device.h"

// Payloads of sparse codecs, written and read where they lie: a GPU's are out
// of the host's reach. On a CPU the codecs have loops of their own
// (compression/sparse/index_list.h), which read only what was validated.
namespace telegrad::kernels {

// Forms of a list of ascending indices below n, with or without a sign each. A
// word here is index << 1 | sign, or the index.
//   gaps     per index its distance from the one before (from -1) less 1,
//            << 1 | sign with signs, in an integer of 8 or 16 bits. All bits
//            set is an escape: as many elements as the largest gap, plus one,
//            are left out.
//   bitmap   ceil(n / 8) bytes, bit i % 8 of byte i / 8 set where i is listed;
//            then, with signs, ceil(count / 8) bytes of them in the same order.
enum class IndexFormat : uint8_t { kGaps8 = 0, kGaps16 = 1, kBitmap = 2 };

// What goes with the indices, and the payload's layout:
//   kSigns   u8 format, u8[3] 0, u32 count, f32 threshold, list with signs
//   kValues  u8 format, u8[3] 0, u32 count, f32[count] values, list
enum class SparseContent : uint8_t { kSigns = 0, kValues = 1 };

TELEGRAD_HOST_DEVICE constexpr uint32_t SignBits(SparseContent content) {
  return content == SparseContent::kSigns ? 1 : 0;
}
TELEGRAD_HOST_DEVICE constexpr uint32_t GapEscape(IndexFormat format) {
  return format == IndexFormat::kGaps8 ? 0xFF : 0xFFFF;
}
// Gaps below this have a code; an escape leaves out this many elements.
TELEGRAD_HOST_DEVICE constexpr uint32_t GapLimit(IndexFormat format,
                                                 SparseContent content) {
  return GapEscape(format) >> SignBits(content);
}
TELEGRAD_HOST_DEVICE constexpr size_t BitmapBytes(SparseContent content,
                                                  size_t n, size_t count) {
  return (n + 7) / 8 + (SignBits(content) != 0 ? (count + 7) / 8 : 0);
}
// Where a payload's list begins.
TELEGRAD_HOST_DEVICE constexpr size_t ListAt(SparseContent content,
                                             size_t count) {
  return content == SparseContent::kSigns ? 12 : 8 + 4 * count;
}

struct IndexListSize {
  IndexFormat format = IndexFormat::kBitmap;
  size_t num_bytes = 0;
};
// The smallest of a list with so many codes of 8 bits, one with so many of 16
// bits, and a bitmap; of equal ones the first.
TELEGRAD_HOST_DEVICE inline IndexListSize SmallestList(size_t num_gaps8,
                                                       size_t num_gaps16,
                                                       size_t bitmap_bytes) {
  IndexListSize best;
  best.num_bytes = bitmap_bytes;
  if (2 * num_gaps16 <= best.num_bytes) {
    best.format = IndexFormat::kGaps16;
    best.num_bytes = 2 * num_gaps16;
  }
  if (num_gaps8 <= best.num_bytes) {
    best.format = IndexFormat::kGaps8;
    best.num_bytes = num_gaps8;
  }
  return best;
}

// What a GPU counts in; CPUs leave it alone (it may be null). Aligned to 8.
constexpr size_t kSparseListParts = 1024;
constexpr size_t kSparseListScratchBytes = 8 * kSparseListParts;

// Writes a payload of the smallest form, around its values, which are there
// already. words [*num_words] ascend, num_words is where the kernels can read
// it; n < 2^31. payload: aligned to 4, with room for BitmapBytes behind ListAt.
// `threshold`: kSigns'. Sets *payload_bytes. Alias: no. Cost: 4 bytes per word
// twice, and the list.
using WriteSparseListFn = void(SparseContent content, const uint32_t* words,
                               const uint64_t* num_words, size_t n,
                               float threshold, uint8_t* payload,
                               uint64_t* payload_bytes, void* scratch,
                               Stream stream);

// Reads a payload of `num_bytes`, aligned to 4:
//   decode:      out [n] = what is listed, 0 elsewhere
//   decode_add:  out [n] += what is listed
// Signs decode to the payload's threshold, plus or minus. Of bytes that no
// encoder wrote nothing is read or written out of bounds; what `out` holds then
// is undefined. Cost: 4 bytes per element to decode, and per listed one the
// list, its value and a sector of `out`.
using ReadSparseListFn = void(SparseContent content, const uint8_t* payload,
                              size_t num_bytes, size_t n, float* out,
                              void* scratch, Stream stream);

struct SparseListKernels {
  WriteSparseListFn* write = nullptr;
  ReadSparseListFn* decode = nullptr;
  ReadSparseListFn* decode_add = nullptr;
};

}  // namespace telegrad::kernels
