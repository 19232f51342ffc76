// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_PLANES_INL_H_
#undef TELEGRAD_KERNELS_CPU_PLANES_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_PLANES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/code_sum.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/two_bit.h"

// Adds codes without unpacking them. Each frame adds code + 1, which is 0, 1
// or 2, to a number per element whose bits lie in separate vectors ("planes"),
// as a ripple-carry adder does; after W frames that number is the k + W of
// kernels/code_sum.h. One logic operation works on as many elements as a
// vector has bits.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using D64 = hn::Repartition<uint64_t, DU>;
using D16 = hn::Repartition<uint16_t, DU>;
using D8 = hn::Repartition<uint8_t, DU>;
using V64 = hn::Vec<D64>;
using V16 = hn::Vec<D16>;
using V8 = hn::Vec<D8>;

// A chunk is two vectors of codes, A and B. Lane l of A holds group l, lane l
// of B group kLanes64 + l; in the planes A's elements take the even bits and
// B's the odd ones.
constexpr size_t kLanes64 = kLanes / 2;
constexpr size_t kVectorBytes = 4 * kLanes;
constexpr size_t kChunk = 2 * 4 * kVectorBytes;  // elements: 128, 256 or 512
constexpr size_t kChunkGroups = kChunk / kSumsPerGroup;
constexpr size_t kMaxPlanes = 16;
constexpr size_t kMaxChunkBytes = 4 * kMaxPlanes * kChunkGroups;
static_assert(SumBits(kMaxSumContributors) == kMaxPlanes);

template <size_t kPlanes>
HWY_INLINE void AddFrame(const uint8_t* codes, V64* planes) {
  const D64 d64;
  const D8 d8;
  const V64 even = hn::Set(d64, 0x5555555555555555u);
  const V64 a = hn::BitCast(d64, hn::LoadU(d8, codes));
  const V64 b = hn::BitCast(d64, hn::LoadU(d8, codes + kVectorBytes));
  const V64 high =
      hn::Or(hn::And(hn::ShiftRight<1>(a), even), hn::AndNot(even, b));
  const V64 low =
      hn::Or(hn::And(a, even), hn::AndNot(even, hn::ShiftLeft<1>(b)));
  const V64 two = hn::And(high, low);
  const V64 carry0 = hn::AndNot(high, planes[0]);
  planes[0] = hn::Xor(planes[0], hn::Not(high));
  const V64 half = hn::Xor(planes[1], two);
  V64 carry = hn::Or(hn::And(planes[1], two), hn::And(half, carry0));
  planes[1] = hn::Xor(half, carry0);
#pragma GCC unroll 16
  for (size_t p = 2; p < kPlanes; ++p) {
    const V64 next = hn::And(planes[p], carry);
    planes[p] = hn::Xor(planes[p], carry);
    carry = next;
  }
}

// Brings a plane from the order of codes into that of elements: lanes 4k and
// 4k + 1 of the result are the words of groups 2k and 2k + 1, lanes 4k + 2 and
// 4k + 3 those of groups kLanes64 + 2k and kLanes64 + 2k + 1.
HWY_INLINE VU ElementOrder(V64 plane) {
  // A byte is B0 A0 B1 A1 B2 A2 B3 A3 from its top bit; these make it
  // B3 B2 B1 B0 A3 A2 A1 A0, from half a byte each.
  alignas(16) static constexpr uint8_t kUpper[16] = {
      0x00, 0x02, 0x20, 0x22, 0x01, 0x03, 0x21, 0x23,
      0x10, 0x12, 0x30, 0x32, 0x11, 0x13, 0x31, 0x33};
  alignas(16) static constexpr uint8_t kLower[16] = {
      0x00, 0x08, 0x80, 0x88, 0x04, 0x0C, 0x84, 0x8C,
      0x40, 0x48, 0xC0, 0xC8, 0x44, 0x4C, 0xC4, 0xCC};
  alignas(16) static constexpr uint8_t kSplit[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                     1, 3, 5, 7, 9, 11, 13, 15};
  const D8 d8;
  const D16 d16;
  const V8 nibble = hn::Set(d8, 0x0F);
  const V8 bytes = hn::BitCast(d8, plane);
  const V8 upper = hn::And(
      hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, bytes))), nibble);
  const V8 lower = hn::And(bytes, nibble);
  const V8 sorted =
      hn::Or(hn::TableLookupBytes(hn::LoadDup128(d8, kUpper), upper),
             hn::TableLookupBytes(hn::LoadDup128(d8, kLower), lower));
  // Swaps the middle nibbles of each pair of bytes: A is now a byte, B too.
  const V16 pairs = hn::BitCast(d16, sorted);
  const V16 differ = hn::And(hn::Xor(pairs, hn::ShiftRight<4>(pairs)),
                             hn::Set(d16, uint16_t{0x00F0}));
  const V16 swapped = hn::Xor(pairs, hn::Xor(differ, hn::ShiftLeft<4>(differ)));
  return hn::BitCast(DU(), hn::TableLookupBytes(hn::BitCast(d8, swapped),
                                                hn::LoadDup128(d8, kSplit)));
}

// Word p of each group of a chunk.
HWY_INLINE void StorePlane(V64 plane, size_t p, size_t bits, uint8_t* words) {
  alignas(64) uint32_t lanes[kLanes];
  hn::Store(ElementOrder(plane), DU(), lanes);
  uint8_t* a = words + 4 * p;
  uint8_t* b = a + 4 * bits * kLanes64;
  for (size_t i = 0; i < kLanes; i += 4) {
    std::memcpy(a, &lanes[i], 4);
    std::memcpy(a + 4 * bits, &lanes[i + 1], 4);
    std::memcpy(b, &lanes[i + 2], 4);
    std::memcpy(b + 4 * bits, &lanes[i + 3], 4);
    a += 8 * bits;
    b += 8 * bits;
  }
}

// Copies the codes of n < kChunk elements and clears the rest of the chunk:
// what a frame has in its unused bits counts nowhere.
HWY_INLINE void CopyLastCodes(const uint8_t* codes, size_t n,
                              uint8_t (&copy)[2 * kVectorBytes]) {
  std::memset(copy, 0, sizeof(copy));
  std::memcpy(copy, codes, (n + 3) / 4);
  if (n % 4 != 0) {
    copy[n / 4] = static_cast<uint8_t>(copy[n / 4] & (0xFF00u >> (n % 4 * 2)));
  }
}

// Sums of n <= kChunk elements whose codes begin `offset` bytes into each
// frame; writes a whole chunk, where elements past n have k = 0.
using SumChunkFn = void(const uint8_t* const* frames, uint32_t num_frames,
                        size_t offset, size_t n, uint32_t bits, uint8_t* words);

template <size_t kPlanes>
void SumChunk(const uint8_t* const* frames, uint32_t num_frames, size_t offset,
              size_t n, uint32_t bits, uint8_t* words) {
  const D64 d64;
  V64 planes[kPlanes];
#pragma GCC unroll 16
  for (size_t p = 0; p < kPlanes; ++p) planes[p] = hn::Zero(d64);
  if (HWY_LIKELY(n == kChunk)) {
    const size_t ahead = PrefetchBytes();
    for (uint32_t f = 0; f < num_frames; ++f) {
      PrefetchRead<2 * kVectorBytes>(frames[f] + offset, ahead);
      AddFrame<kPlanes>(frames[f] + offset, planes);
    }
  } else {
    alignas(64) uint8_t copy[2 * kVectorBytes];
    for (uint32_t f = 0; f < num_frames; ++f) {
      CopyLastCodes(frames[f] + offset, n, copy);
      AddFrame<kPlanes>(copy, planes);
    }
  }
#pragma GCC unroll 16
  for (size_t p = 0; p < kPlanes; ++p) {
    if (p < bits) StorePlane(planes[p], p, bits, words);
  }
}

// The usual numbers of workers keep their planes in registers.
HWY_INLINE SumChunkFn* ChooseSumChunk(uint32_t bits) {
  switch (bits) {
    case 2:
      return SumChunk<2>;
    case 3:
      return SumChunk<3>;
    case 4:
      return SumChunk<4>;
    case 5:
      return SumChunk<5>;
    case 6:
      return SumChunk<6>;
    default:
      return SumChunk<kMaxPlanes>;
  }
}

// Clears the bits of elements past n in the last group that has any.
HWY_INLINE void ClearPastEnd(size_t n, uint32_t bits, uint8_t* words) {
  if (n % kSumsPerGroup == 0) return;
  const uint32_t keep = (1u << (n % kSumsPerGroup)) - 1;
  uint8_t* group = words + 4 * bits * (n / kSumsPerGroup);
  for (uint32_t p = 0; p < bits; ++p) {
    uint32_t word;
    std::memcpy(&word, group + 4 * p, 4);
    word &= keep;
    std::memcpy(group + 4 * p, &word, 4);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
