// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_SUMS_INL_H_
#undef TELEGRAD_KERNELS_CPU_SUMS_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_SUMS_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/code_sum.h"
#include "kernels/cpu/vectors-inl.h"

// Unpacks the sums of kernels/code_sum.h, a group at a time.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// The sums k of a group.
struct GroupSums {
  alignas(64) std::array<int32_t, kSumsPerGroup> sums;
};

// Sums of elements [i, i + kLanes).
HWY_INLINE VI LanesOf(const GroupSums& group, size_t i) {
  return hn::Load(DI(), group.sums.data() + i);
}

// Stores bytes as lanes, without a way through memory: a load from within a
// store would wait until that has left the store buffer, behind all before it.
template <class V>
HWY_INLINE void StoreWidened(V bytes, int32_t* to) {
  using D = hn::DFromV<V>;
  if constexpr (hn::MaxLanes(D()) == kLanes) {
    hn::Store(hn::PromoteTo(DI(), bytes), DI(), to);
  } else {
    const hn::Half<D> half;
    StoreWidened(hn::LowerHalf(half, bytes), to);
    StoreWidened(hn::UpperHalf(half, bytes), to + hn::MaxLanes(half));
  }
}

// kBits: the sums' bits, or 0 where those are not known here.
template <uint32_t kBits>
class SumsOf {
 public:
  HWY_INLINE SumsOf(uint32_t bits, uint32_t num_frames)
      : bits_(kBits != 0 ? kBits : bits), num_frames_(num_frames) {}

  // The words of the group that has element i.
  HWY_INLINE const uint8_t* WordsOf(const uint8_t* packed, size_t i) const {
    const uint32_t bits = kBits != 0 ? kBits : bits_;
    return packed + 4 * bits * (i / kSumsPerGroup);
  }
  HWY_INLINE void Unpack(const uint8_t* packed, size_t i,
                         GroupSums& group) const {
    if constexpr (kBits >= 1 && kBits <= 7) {
      UnpackBytes(WordsOf(packed, i), group.sums.data());
    } else {
      UnpackLanes(WordsOf(packed, i), group.sums.data());
    }
  }

 private:
  static HWY_INLINE uint32_t Word(const uint8_t* words, uint32_t p) {
    uint32_t word;
    std::memcpy(&word, words + 4 * p, sizeof(word));
    return word;
  }

  // Sums of up to 7 bits: a byte per element, 16 or 32 of them at once.
  HWY_INLINE void UnpackBytes(const uint8_t* words, int32_t* sums) const {
    const hn::CappedTag<uint8_t, kSumsPerGroup> d8;
    const hn::Repartition<uint32_t, decltype(d8)> d32;
    // Byte e of a vector looks at bit e % 8 of byte e / 8 of a word.
    alignas(32) static constexpr uint8_t kSpread[kSumsPerGroup] = {
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
        2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    const auto bit = hn::BitCast(
        d8,
        hn::Set(hn::Repartition<uint64_t, decltype(d8)>(), 0x8040201008040201));
    const auto offset = hn::Set(d8, static_cast<uint8_t>(num_frames_));
    for (size_t i = 0; i < kSumsPerGroup; i += hn::MaxLanes(d8)) {
      const auto spread = hn::Load(d8, kSpread + i);
      auto value = hn::Zero(d8);
#pragma GCC unroll 7
      for (uint32_t p = 1; p <= kBits; ++p) {
        const auto word = hn::BitCast(d8, hn::Set(d32, Word(words, kBits - p)));
        const auto is_set =
            hn::TestBit(hn::TableLookupBytes(word, spread), bit);
        value = hn::Sub(hn::Add(value, value), hn::VecFromMask(d8, is_set));
      }
      const hn::RebindToSigned<decltype(d8)> di8;
      StoreWidened(hn::BitCast(di8, hn::Sub(value, offset)), sums + i);
    }
  }

  HWY_INLINE void UnpackLanes(const uint8_t* words, int32_t* sums) const {
    const DU du;
    const VU lane_bit = hn::Shl(hn::Set(du, 1), hn::Iota(du, 0));
    const VU one = hn::Set(du, 1);
    for (size_t i = 0; i < kSumsPerGroup; i += kLanes) {
      VU value = hn::Zero(du);
      for (uint32_t p = bits_; p-- > 0;) {
        const VU word = hn::Set(du, Word(words, p) >> i);
        const auto is_set = hn::TestBit(word, lane_bit);
        value = hn::Add(hn::Add(value, value), hn::IfThenElseZero(is_set, one));
      }
      const VU sum = hn::Sub(value, hn::Set(du, num_frames_));
      hn::Store(hn::BitCast(DI(), sum), DI(), sums + i);
    }
  }

  const uint32_t bits_;
  const uint32_t num_frames_;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
