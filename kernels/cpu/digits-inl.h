// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_DIGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_DIGITS_INL_H_
#undef TELEGRAD_KERNELS_CPU_DIGITS_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_DIGITS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/put-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/radix.h"

// Codes as digits in radix 3, of kernels/radix.h: a vector holds neighbouring
// bytes of a block, and its digit p neighbouring elements.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Bytes of payload are decoded as 16-bit lanes, twice as many as floats.
using D16 = hn::Repartition<uint16_t, DU>;
using D16Half = hn::Half<D16>;
using D8 = hn::Rebind<uint8_t, D16>;
using V16 = hn::Vec<D16>;
constexpr size_t kColumns = 2 * kLanes;
constexpr size_t kLineFloats = kLineBytes / sizeof(float);
constexpr size_t kVectorsPerBlock = kNumbersPerBlock / kLanes;

// A block ahead: within a block memory is not visited in order.
HWY_INLINE void PrefetchReadBlock(const float* line) {
  __builtin_prefetch(line + kRadixBlock, 0);
}
HWY_INLINE void PrefetchWriteBlock(const void* line) {
  PrefetchForWrite(static_cast<const float*>(line) + kRadixBlock);
}

// 3 * number + digit: 0 for negative, 2 for positive, else 1.
template <class Mask>
HWY_INLINE VU AppendDigit(VU number, Mask positive, Mask negative) {
  const DU du;
  const VU digit =
      hn::IfThenElse(hn::RebindMask(du, negative), hn::Zero(du),
                     hn::IfThenElse(hn::RebindMask(du, positive),
                                    hn::Set(du, 2), hn::Set(du, 1)));
  return hn::Add(hn::Add(number, hn::Add(number, number)), digit);
}

HWY_INLINE void StoreBytes(VU numbers, uint8_t* bytes) {
  const hn::Rebind<uint8_t, DI> d8;
  hn::StoreU(hn::DemoteTo(d8, hn::BitCast(DI(), numbers)), d8, bytes);
}

// The lowest digit, which is taken off. The multiplication divides by 3 below
// 2^15.
HWY_INLINE V16 TakeDigit(V16& number) {
  const D16 d16;
  const V16 rest = hn::MulHigh(number, hn::Set(d16, uint16_t{21846}));
  const V16 digit = hn::Sub(number, hn::Add(rest, hn::Add(rest, rest)));
  number = rest;
  return digit;
}

// Adds the digits of bytes [at, at + kColumns) over the frames.
HWY_INLINE void SumColumns(const uint8_t* const* frames, uint32_t num_frames,
                           size_t at, V16 (&sums)[kRadixDigits]) {
  const D16 d16;
  for (size_t p = 0; p < kRadixDigits; ++p) sums[p] = hn::Zero(d16);
  for (uint32_t f = 0; f < num_frames; ++f) {
    V16 number = hn::PromoteTo(d16, hn::LoadU(D8(), frames[f] + at));
#pragma GCC unroll 5
    for (size_t p = 0; p < kRadixDigits; ++p) {
      sums[p] = hn::Add(sums[p], TakeDigit(number));
    }
  }
}

// Puts float(k) * t for the k + W in `sums`.
template <Put kPut>
HWY_INLINE void StoreValues(V16 sums, VI num_frames, VF t, float* out) {
  const DF df;
  const DI di;
  const D16Half half;
  const VF low = hn::ConvertTo(
      df, hn::Sub(hn::PromoteTo(di, hn::LowerHalf(half, sums)), num_frames));
  const VF high = hn::ConvertTo(
      df, hn::Sub(hn::PromoteTo(di, hn::UpperHalf(half, sums)), num_frames));
  PutLanes<kPut>(hn::Mul(low, t), out);
  PutLanes<kPut>(hn::Mul(high, t), out + kLanes);
}

// counts = k + W of elements [first, first + n); a block begins at `first`,
// and the frames end with it or at first + n.
void CountDigits(const uint8_t* const* frames, uint32_t num_frames,
                 size_t first, size_t n, uint16_t* counts) {
  const D16 d16;
  const size_t whole = n - n % kRadixBlock;
  const size_t at = first / kRadixDigits;
  for (size_t i = 0; i < whole; i += kRadixBlock) {
    for (size_t j = 0; j < kRadixBlockBytes; j += kColumns) {
      V16 sums[kRadixDigits];
      SumColumns(frames, num_frames, at + i / kRadixDigits + j, sums);
      for (size_t p = 0; p < kRadixDigits; ++p) {
        hn::StoreU(sums[p], d16, counts + i + p * kRadixBlockBytes + j);
      }
    }
  }
  if (whole == n) return;
  const size_t num_bytes = RadixBlockBytes(n - whole);
  std::fill(counts + whole, counts + n, uint16_t{0});
  for (uint32_t f = 0; f < num_frames; ++f) {
    const uint8_t* last = frames[f] + at + whole / kRadixDigits;
    for (size_t j = 0; j < num_bytes; ++j) {
      uint32_t number = last[j];
      for (size_t i = whole + j; i < n; i += num_bytes) {
        counts[i] = static_cast<uint16_t>(counts[i] + number % 3);
        number /= 3;
      }
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
