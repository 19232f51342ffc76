// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_LANES_INL_H_
#undef TELEGRAD_KERNELS_CPU_LANES_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_LANES_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"

// Sums by lanes in the order of kernels/sign.h and kernels/block.h.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Adds the upper h lanes of 2 * h to the lower.
HWY_INLINE void Halve(float* lanes, size_t h) {
  const DF df;
  for (size_t l = 0; l < h; l += kLanes) {
    hn::Store(hn::Add(hn::Load(df, lanes + l), hn::Load(df, lanes + l + h)), df,
              lanes + l);
  }
}

// What kLeft of `kLastLanes` lanes hold after the others were added to them:
// the first four of these.
constexpr size_t kLastLanes = 64;
using D4 = hn::CappedTag<float, 4>;
template <size_t kLeft>
HWY_INLINE hn::Vec<D4> FourOfLanes(const float* lanes) {
  if constexpr (kLeft == kLastLanes) {
    return hn::Load(D4(), lanes);
  } else {
    return hn::Add(FourOfLanes<2 * kLeft>(lanes),
                   FourOfLanes<2 * kLeft>(lanes + kLeft));
  }
}

// Lane l < h adds lane l + h, for h = kNumLanes / 2 and so on to 1; lane 0.
template <size_t kNumLanes>
HWY_INLINE float SumOfLanes(float* lanes) {
  for (size_t h = kNumLanes / 2; h >= kLastLanes; h /= 2) Halve(lanes, h);
  const auto four = FourOfLanes<4>(lanes);
  const auto two = hn::Add(four, hn::Shuffle1032(four));
  return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
