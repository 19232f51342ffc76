// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_SIGN_BLOCKS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_SIGN_BLOCKS_INL_H_
#undef TELEGRAD_KERNELS_CPU_SIGN_BLOCKS_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_SIGN_BLOCKS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sign_bits-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/sign.h"

// Signs and scales of blocks.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Takes +-scale off values, whose signs go to `bits`, a group at a time.
class SignTaker {
 public:
  HWY_INLINE SignTaker(float* values, float scale, uint8_t* bits)
      : values_(values),
        scale_(scale),
        plus_(hn::Set(DF(), scale)),
        minus_(hn::Set(DF(), -scale)),
        bits_(bits) {}

  HWY_INLINE void Take(size_t i, size_t ahead) const {
    const DF df;
    PrefetchBits(bits_ + i / 8, ahead);
    GroupMasks is_positive;
    for (size_t k = 0; k < 4; ++k) {
      float* value = values_ + i + k * kLanes;
      const VF v = hn::LoadU(df, value);
      is_positive.at[k] = hn::Ge(v, hn::Zero(df));
      hn::StoreU(hn::Sub(v, hn::IfThenElse(is_positive.at[k], plus_, minus_)),
                 df, value);
    }
    StoreBits(is_positive, bits_ + i / 8);
  }
  // The first `end` of them.
  HWY_INLINE void TakeAll(size_t end) const {
    const size_t ahead = PrefetchBytes();
    size_t i = 0;
    for (; i + kGroup <= end; i += kGroup) Take(i, ahead);
    std::memset(bits_ + i / 8, 0, SignBytes(end) - i / 8);
    for (; i < end; ++i) {
      const bool is_positive = values_[i] >= 0;
      values_[i] = is_positive ? values_[i] - scale_ : values_[i] + scale_;
      const uint32_t bit = is_positive ? 128u >> i % 8 : 0;
      bits_[i / 8] = static_cast<uint8_t>(bits_[i / 8] | bit);
    }
  }

 private:
  float* values_;
  float scale_;
  VF plus_;
  VF minus_;
  uint8_t* bits_;
};

// The sum of kSignLanes lanes, in the order of the definition, over m.
HWY_INLINE float MeanOfLanes(float* lanes, size_t m) {
  const float mean = SumOfLanes<kSignLanes>(lanes) / static_cast<float>(m);
  constexpr float kLargest = std::numeric_limits<float>::max();
  return mean <= kLargest ? mean : kLargest;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
