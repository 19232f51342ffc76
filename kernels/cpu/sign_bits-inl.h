// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_SIGN_BITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_SIGN_BITS_INL_H_
#undef TELEGRAD_KERNELS_CPU_SIGN_BITS_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_SIGN_BITS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/put-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/sign.h"

// Masks of lanes as the bits of a payload, and back.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// What is done between two looks at whether all is finite: whole bytes.
constexpr size_t kGroup = 4 * kLanes;
// What a turn of the loops does: whole words of bits on all targets.
constexpr size_t kTurn = 64;
static_assert(kTurn % kGroup == 0);
using Group =
    std::conditional_t<kGroup == 64, uint64_t,
                       std::conditional_t<kGroup == 32, uint32_t, uint16_t>>;
using LaneBits = std::conditional_t<kLanes == 16, uint16_t, uint8_t>;

// The values of a group, and what is done to all of them.
struct FourVectors {
  HWY_INLINE FourVectors() {}  // the compiler's is not one of the target
  VF at[4];
};

HWY_INLINE FourVectors Load(const float* from) {
  FourVectors v;
  for (size_t k = 0; k < 4; ++k) v.at[k] = hn::LoadU(DF(), from + k * kLanes);
  return v;
}
HWY_INLINE void Store(const FourVectors& v, float* to) {
  for (size_t k = 0; k < 4; ++k) hn::StoreU(v.at[k], DF(), to + k * kLanes);
}
HWY_INLINE FourVectors SumOf(const FourVectors& a, const FourVectors& b) {
  FourVectors sum;
  for (size_t k = 0; k < 4; ++k) sum.at[k] = hn::Add(a.at[k], b.at[k]);
  return sum;
}
HWY_INLINE FourVectors MagnitudesOf(const FourVectors& v) {
  FourVectors magnitudes;
  for (size_t k = 0; k < 4; ++k) magnitudes.at[k] = hn::Abs(v.at[k]);
  return magnitudes;
}

HWY_INLINE uint64_t BitsOf(hn::Mask<DF> mask) {
  uint8_t bytes[sizeof(LaneBits)];
  hn::StoreMaskBits(DF(), mask, bytes);
  LaneBits bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// The masks of a group.
struct GroupMasks {
  HWY_INLINE GroupMasks() {}
  hn::Mask<DF> at[4];
};

// The line of bits that is written somewhat later than what `ahead` bytes of
// floats hold.
HWY_INLINE void PrefetchBits(const uint8_t* bits, size_t ahead) {
  PrefetchWrite<1>(bits, ahead / 16);
}

// Stores a group's bits as the payload has them: the first element's is the
// highest of the first byte.
HWY_INLINE void StoreBits(const GroupMasks& masks, uint8_t* to) {
  if constexpr (kLanes == 8 && !kHasMaskRegisters) {
    // Lane l of the bytes has bit l of all four vectors.
    alignas(16) static constexpr uint8_t kBackwards[16] = {
        12, 8, 4, 0, 13, 9, 5, 1, 14, 10, 6, 2, 15, 11, 7, 3};
    alignas(32) static constexpr uint32_t kHalves[8] = {4, 0, 5, 1, 6, 2, 7, 3};
    const DU du;
    const hn::Repartition<uint8_t, DU> d8;
    const auto bytes =
        hn::BitCast(d8, BytesOf(hn::RebindMask(du, masks.at[0]),
                                hn::RebindMask(du, masks.at[1]),
                                hn::RebindMask(du, masks.at[2]),
                                hn::RebindMask(du, masks.at[3])));
    const auto halves = hn::BitCast(
        du, hn::TableLookupBytes(bytes, hn::LoadDup128(d8, kBackwards)));
    const VU words =
        hn::TableLookupLanes(halves, hn::SetTableIndices(du, kHalves));
    hn::StoreMaskBits(d8, hn::MaskFromVec(hn::BitCast(d8, words)), to);
  } else {
    uint64_t bits = 0;
    for (size_t k = 0; k < 4; ++k) bits |= BitsOf(masks.at[k]) << (k * kLanes);
    bits = (bits >> 1 & 0x5555555555555555) | (bits & 0x5555555555555555) << 1;
    bits = (bits >> 2 & 0x3333333333333333) | (bits & 0x3333333333333333) << 2;
    bits = (bits >> 4 & 0x0F0F0F0F0F0F0F0F) | (bits & 0x0F0F0F0F0F0F0F0F) << 4;
    const Group group = static_cast<Group>(bits);
    std::memcpy(to, &group, sizeof(group));
  }
}

alignas(64) constexpr uint32_t kSignMask[kSignsPerWord] = {
    1u << 7,  1u << 6,  1u << 5,  1u << 4,  1u << 3,  1u << 2,  1u << 1,
    1u << 0,  1u << 15, 1u << 14, 1u << 13, 1u << 12, 1u << 11, 1u << 10,
    1u << 9,  1u << 8,  1u << 23, 1u << 22, 1u << 21, 1u << 20, 1u << 19,
    1u << 18, 1u << 17, 1u << 16, 1u << 31, 1u << 30, 1u << 29, 1u << 28,
    1u << 27, 1u << 26, 1u << 25, 1u << 24};

// A word's bits in all lanes.
HWY_INLINE VU LoadWord(const uint8_t* bits) {
  uint32_t word;
  std::memcpy(&word, bits, sizeof(word));
  return hn::Set(DU(), word);
}
// Bits of the elements from `i` on, of a word in all lanes.
HWY_INLINE hn::Mask<DU> BitsFrom(VU word, size_t i) {
  return hn::TestBit(word, hn::Load(DU(), kSignMask + i));
}

// Decodes whole turns of +-magnitude; returns how many elements are done.
template <Put kPut>
size_t DecodeTurns(const uint8_t* HWY_RESTRICT bits, size_t n, float magnitude,
                   float* HWY_RESTRICT out) {
  const DF df;
  const VF plus = hn::Set(df, magnitude);
  const VF minus = hn::Set(df, -magnitude);
  const size_t end = n / kTurn * kTurn;
  const size_t ahead = PrefetchBytes();
  for (size_t i = 0; i < end; i += kSignsPerWord) {
    PrefetchPut<kPut, 4 * kSignsPerWord>(out + i, ahead);
    const VU word = LoadWord(bits + i / 8);
    for (size_t j = 0; j < kSignsPerWord; j += kLanes) {
      PutLanes<kPut>(
          hn::IfThenElse(hn::RebindMask(df, BitsFrom(word, j)), plus, minus),
          out + i + j);
    }
  }
  return end;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
