#include "compression/two_bit/packing.h"

#include <algorithm>

#include "base/endian.h"

namespace telegrad {
namespace {

using kernels::DigitGroup;

// Whether no code is 01 and the unused bits of the last word are 0.
bool ArePlainCodes(const uint8_t* codes, size_t n) {
  const size_t num_bytes = kernels::TwoBitBytes(n);
  uint8_t wrong = 0;
  for (size_t i = 0; i < num_bytes; ++i) {
    // The low bit of a pair without its high bit.
    wrong |= static_cast<uint8_t>(codes[i] & ~(codes[i] >> 1) & 0x55);
  }
  const size_t used = n % kernels::kCodesPerWord;
  if (used == 0) return wrong == 0;
  const uint8_t* word = codes + num_bytes - 4;
  for (size_t i = used; i < kernels::kCodesPerWord; ++i) {
    wrong |= static_cast<uint8_t>(word[i / 4] >> (6 - 2 * (i % 4)) & 3);
  }
  return wrong == 0;
}

// Any bits decode to something within W.
bool ArePlainSums(const uint8_t*, uint32_t, size_t) { return true; }

// Whether all bytes are below 3^5 and the digits past n are 0.
bool AreRadixCodes(const uint8_t* codes, size_t n) {
  const size_t num_bytes = kernels::RadixBytes(n);
  uint8_t largest = 0;
  for (size_t i = 0; i < num_bytes; ++i) largest = std::max(largest, codes[i]);
  if (largest >= kernels::kRadixByteEnd) return false;
  const size_t used = n % kernels::kRadixBlock;
  const size_t last_bytes = kernels::RadixBytes(used);
  const uint8_t* last = codes + num_bytes - last_bytes;
  for (size_t j = 0; j < last_bytes; ++j) {
    uint32_t end = 1;  // 3^(digits that byte j has)
    for (size_t i = j; i < used; i += last_bytes) end *= 3;
    if (last[j] >= end) return false;
  }
  return true;
}

// The numbers below `end`, as bits of a word: compares all 32 of a block at
// once, plane by plane from the highest.
uint32_t NumbersBelow(uint32_t end, uint32_t bits, const uint8_t* planes) {
  uint32_t below = 0;
  uint32_t equal = ~uint32_t{0};
  for (uint32_t p = bits; p-- > 0;) {
    const auto plane = LoadLittleEndian<uint32_t>(
        reinterpret_cast<const std::byte*>(planes) + 4 * p);
    if ((end >> p & 1) != 0) {
      below |= equal & ~plane;
      equal &= plane;
    } else {
      equal &= ~plane;
    }
  }
  // end = 2^bits cannot be: a power of an odd radix is odd.
  return below;
}

// Whether all numbers are below R^digits and the digits past n are 0. A digit
// within is at most R - 1 = 2W by that.
bool AreRadixSums(const uint8_t* sums, uint32_t num_frames, size_t n) {
  const DigitGroup group = kernels::DigitGroupFor(num_frames);
  const size_t block = kernels::SumBlock(group);
  uint32_t below = ~uint32_t{0};
  for (size_t i = 0; i < n / block; ++i) {
    below &= NumbersBelow(group.end, group.bits, sums + 4 * group.bits * i);
  }
  if (below != ~uint32_t{0}) return false;
  const size_t used = n % block;
  if (used == 0) return true;
  const uint8_t* last = sums + 4 * group.bits * (n / block);
  for (size_t j = 0; j < kernels::kNumbersPerBlock; ++j) {
    uint32_t end = 1;  // R^(digits that number j has)
    for (size_t i = j; i < used; i += kernels::kNumbersPerBlock) {
      end *= group.radix;
    }
    if ((NumbersBelow(end, group.bits, last) >> j & 1) == 0) return false;
  }
  return true;
}

size_t PlainTile(uint32_t) { return kernels::kDecodeTile; }
size_t RadixTile(uint32_t num_frames) {
  return num_frames == 0 ? kernels::kRadixTile
                         : kernels::RadixSumTile(num_frames);
}

Packing Plain(const kernels::KernelTable& table) {
  return {.id = PackingId::kPlain,
          .num_bytes = kernels::TwoBitBytes,
          .sum_bytes = kernels::PackedSumBytes,
          .are_codes = ArePlainCodes,
          .are_sums = ArePlainSums,
          .encode = table.two_bit_encode,
          .encode_fp16 = table.two_bit_encode_fp16,
          .encode_bf16 = table.two_bit_encode_bf16,
          .encode_many = table.batch.two_bit,
          .encode_many_fp16 = table.batch.two_bit_fp16,
          .encode_many_bf16 = table.batch.two_bit_bf16,
          .decode_many = table.batch.two_bit_decode,
          .packed_sum_decode_many = table.batch.packed_sum_decode,
          .decode_tile = PlainTile,
          .decode = table.two_bit_decode,
          .decode_add = table.two_bit_decode_add,
          .sum_pack = table.two_bit_sum_pack,
          .packed_sum_decode = table.packed_sum_decode,
          .sum_decode = table.two_bit_sum_decode,
          .reencode = table.two_bit_reencode};
}

Packing Radix(const kernels::KernelTable& table) {
  return {.id = PackingId::kRadix,
          .num_bytes = kernels::RadixBytes,
          .sum_bytes = kernels::RadixSumBytes,
          .are_codes = AreRadixCodes,
          .are_sums = AreRadixSums,
          .encode = table.radix.encode,
          .encode_many = table.batch.radix,
          .decode_many = table.batch.radix_decode,
          .packed_sum_decode_many = table.batch.radix_sum_decode,
          .decode_tile = RadixTile,
          .decode = table.radix.decode,
          .decode_add = table.radix.decode_add,
          .sum_pack = table.radix.sum_pack,
          .packed_sum_decode = table.radix.packed_sum_decode,
          .sum_decode = table.radix.sum_decode,
          .reencode = table.radix.reencode};
}

}  // namespace

Packing PackingOf(PackingId id, const kernels::KernelTable& table) {
  return id == PackingId::kRadix ? Radix(table) : Plain(table);
}

}  // namespace telegrad
