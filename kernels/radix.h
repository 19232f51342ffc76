#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/code_sum.h"
#include "kernels/two_bit.h"

// The codes of kernels/two_bit.h and their sums as digits of larger numbers:
// log2(3) = 1.58 bits are in a code, log2(2W+1) in a sum of W of them.
//
// Codes: 5 to a byte, 1.6 bits each. The digit of a code is code + 1 (0, 1, 2
// for -t, 0, +t); a byte is sum(digit[p] * 3^p, p < 5), at most 242. Elements
// go in blocks of 320 in 64 bytes: digit p of byte j is element 64*p + j of the
// block, so that vectors hold neighbours. A last block of r < 320 elements has
// s = ceil(r/5) bytes, and digit p of byte j is element s*p + j. Digits of
// elements past n are 0. Any byte can be decoded: digit p is
// floor(byte / 3^p) mod 3.
//
// Sums of W codes: `digits` of them in radix R = 2W+1 to a number of `bits`
// bits (DigitGroup). A block is 32 numbers, `bits` little-endian uint32 words;
// bit j of word p is bit p of number j (planes, as in kernels/code_sum.h).
// Digit i of number j is (k + W) of element 32*i + j of the block, in
// sum(digit[i] * R^i). Digits of elements past n are 0. Any bits can be
// decoded: digit i is floor(number / R^i) mod R.
namespace telegrad::kernels {

constexpr size_t kRadixDigits = 5;
constexpr size_t kRadixBlockBytes = 64;
constexpr size_t kRadixBlock = kRadixDigits * kRadixBlockBytes;
constexpr uint32_t kRadixByteEnd = 243;  // 3^5: larger bytes never occur

constexpr size_t RadixBytes(size_t n) {
  return n / kRadixBlock * kRadixBlockBytes +
         (n % kRadixBlock + kRadixDigits - 1) / kRadixDigits;
}

// Bytes of the block that `num_elems` elements, counted from its first, are in.
constexpr size_t RadixBlockBytes(size_t num_elems) {
  return num_elems >= kRadixBlock ? kRadixBlockBytes : RadixBytes(num_elems);
}

// How sums of W codes are packed: the fewest bits per digit among all numbers
// of at most 31 bits, the fewest digits among equals. 31, because then 32-bit
// multiplications divide: floor(x / radix) = (x * reciprocal) >> shift for
// every x below 2^bits (Granlund and Montgomery, PLDI 1994). With 64 bits it
// would be at most 1.3 % less for W = 2 to 8.
struct DigitGroup {
  uint32_t radix = 3;
  uint32_t digits = 1;
  uint32_t bits = 2;
  uint32_t reciprocal = 0;
  uint32_t shift = 0;
  uint32_t end = 3;  // radix^digits: numbers are below it
};

constexpr uint32_t kMaxGroupBits = 31;
constexpr uint32_t kMaxGroupDigits = 13;  // 5^13 < 2^31; W = 1 takes fewer
constexpr size_t kNumbersPerBlock = 32;

constexpr uint32_t BitsBelow(uint64_t end) {
  uint32_t bits = 0;
  while ((uint64_t{1} << bits) < end) ++bits;
  return bits;
}

// 1 <= num_frames <= kMaxSumContributors. W = 1: 5 digits in 8 bits; 2: 3 in 7;
// 4: 5 in 16; 8: 7 in 29.
constexpr DigitGroup DigitGroupFor(uint32_t num_frames) {
  DigitGroup best;
  best.radix = 2 * num_frames + 1;
  best.bits = kMaxGroupBits + 1;
  uint64_t end = best.radix;
  for (uint32_t digits = 1; digits <= kMaxGroupDigits; ++digits) {
    const uint32_t bits = BitsBelow(end);
    if (bits > kMaxGroupBits) break;
    if (bits * best.digits < best.bits * digits) {
      best.digits = digits;
      best.bits = bits;
      best.end = static_cast<uint32_t>(end);
    }
    end *= best.radix;
  }
  best.shift = best.bits + BitsBelow(best.radix);
  best.reciprocal =
      static_cast<uint32_t>((uint64_t{1} << best.shift) / best.radix + 1);
  return best;
}

constexpr uint32_t DivideByRadix(uint32_t number, const DigitGroup& group) {
  return static_cast<uint32_t>((uint64_t{number} * group.reciprocal) >>
                               group.shift);
}

// Elements in a block of packed sums.
constexpr size_t SumBlock(const DigitGroup& group) {
  return kNumbersPerBlock * group.digits;
}

constexpr size_t RadixSumBytes(size_t n, uint32_t num_frames) {
  const DigitGroup group = DigitGroupFor(num_frames);
  const size_t block = SumBlock(group);
  return 4 * size_t{group.bits} * ((n + block - 1) / block);
}

// What the operations of kernels/two_bit.h and kernels/code_sum.h are, with
// RadixBytes(n) for TwoBitBytes(n) and RadixSumBytes for PackedSumBytes.
struct RadixKernels {
  TwoBitEncodeFn* encode = nullptr;
  TwoBitDecodeFn* decode = nullptr;
  TwoBitDecodeAddFn* decode_add = nullptr;
  TwoBitSumPackFn* sum_pack = nullptr;
  PackedSumDecodeFn* packed_sum_decode = nullptr;
  TwoBitSumDecodeFn* sum_decode = nullptr;
  TwoBitReencodeFn* reencode = nullptr;
};

}  // namespace telegrad::kernels
