// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_BLOCK_SCALE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_BLOCK_SCALE_INL_H_
#undef TELEGRAD_KERNELS_CPU_BLOCK_SCALE_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_BLOCK_SCALE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/block_rules.h"
#include "kernels/cpu/block_codes-inl.h"
#include "kernels/cpu/lanes-inl.h"

// What scales of blocks are made of.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr size_t kGroupBytes = 4 * kGroup;

HWY_INLINE VI Magnitude(VF v) {
  return hn::And(hn::BitCast(DI(), v), hn::Set(DI(), 0x7FFFFFFF));
}

// The bits of the largest magnitude of what it takes: kInfinityBits or more
// when one is not finite.
template <bool kHasResidual>
class Maximum {
 public:
  static constexpr uint32_t kMost = kInfinityBits;
  // Initialisers of members would not be compiled for the target.
  HWY_INLINE Maximum() : most0_(hn::Zero(DI())), most1_(hn::Zero(DI())) {}

  // A group. Fetches the gradient `ahead` bytes on.
  HWY_INLINE void Take(const float* g, const float* r, size_t ahead) {
    PrefetchRead<kGroupBytes>(g, ahead);
    for (size_t j = 0; j < kGroup; j += 2 * kLanes) {
      most0_ = hn::Max(most0_, Magnitude(Values(g, r, j)));
      most1_ = hn::Max(most1_, Magnitude(Values(g, r, j + kLanes)));
    }
  }
  HWY_INLINE bool IsFinite() const {
    return hn::AllTrue(DI(), hn::Lt(hn::Max(most0_, most1_),
                                    hn::Set(DI(), int32_t{kInfinityBits})));
  }
  // Takes [from, to) and returns the bits.
  HWY_INLINE uint32_t Finish(const float* grad, const float* residual,
                             size_t from, size_t to, size_t ahead) {
    size_t i = from;
    for (; i + kGroup <= to; i += kGroup) {
      Take(grad + i, kHasResidual ? residual + i : nullptr, ahead);
    }
    uint32_t most = static_cast<uint32_t>(
        hn::GetLane(hn::MaxOfLanes(DI(), hn::Max(most0_, most1_))));
    for (; i < to; ++i) {
      const uint32_t bits =
          MagnitudeBits(kHasResidual ? residual[i] + grad[i] : grad[i]);
      if (bits > most) most = bits;
    }
    return most;
  }

 private:
  HWY_INLINE static VF Values(const float* g, const float* r, size_t j) {
    const VF v = hn::LoadU(DF(), g + j);
    if constexpr (!kHasResidual) return v;
    return hn::Add(hn::LoadU(DF(), r + j), v);
  }

  VI most0_;
  VI most1_;
};

// The sums of squares of groups of a block, one after the other; the same of
// what is not finite, or too large for a square, is no less than kMost.
class Squares {
 public:
  static constexpr float kMost = kMostSquare;
  HWY_INLINE Squares() {
    for (size_t l = 0; l < kSquareLanes; l += kLanes) {
      hn::Store(hn::Zero(DF()), DF(), lanes_ + l);
    }
  }

  HWY_INLINE void Take(const float* g, const float* r, size_t ahead) {
    const DF df;
    PrefetchRead<kGroupBytes>(g, ahead);
    for (size_t j = 0; j < kGroup; j += kLanes) {
      const VF v = hn::Add(hn::LoadU(df, r + j), hn::LoadU(df, g + j));
      float* const lane = lanes_ + first_ + j;
      hn::Store(hn::Add(hn::Load(df, lane), hn::Mul(v, v)), df, lane);
    }
    first_ = kSquareLanes - kGroup - first_;
  }
  HWY_INLINE float Finish(const float* grad, const float* residual, size_t from,
                          size_t to, size_t ahead) {
    size_t i = from;
    for (; i + kGroup <= to; i += kGroup) Take(grad + i, residual + i, ahead);
    for (size_t j = 0; i + j < to; ++j) {
      const float v = residual[i + j] + grad[i + j];
      lanes_[first_ + j] += v * v;
    }
    return SumOfLanes<kSquareLanes>(lanes_);
  }

 private:
  alignas(64) float lanes_[kSquareLanes];
  size_t first_ = 0;  // lane of the next group
};
static_assert(kSquareLanes == 2 * kGroup, "two groups");

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
