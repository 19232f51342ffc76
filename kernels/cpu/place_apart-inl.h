// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_PLACE_APART_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_PLACE_APART_INL_H_
#undef TELEGRAD_KERNELS_CPU_PLACE_APART_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_PLACE_APART_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

// Where a sweep over a block of m floats, whole groups, is while another sweep
// is at i of the block beside it. Loads and stores that are a multiple of 4 KiB
// apart hold each other up, and blocks usually are that long.
template <size_t kGroupElems>
HWY_INLINE size_t PlaceApart(size_t i, size_t m) {
  constexpr size_t kMost = 512;  // 2 KiB
  const size_t apart = m / 4 < kMost ? m / 4 : kMost;
  const size_t place = i + apart / kGroupElems * kGroupElems;
  return place < m ? place : place - m;
}

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
