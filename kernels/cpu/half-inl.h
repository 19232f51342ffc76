// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_HALF_INL_H_
#undef TELEGRAD_KERNELS_CPU_HALF_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_HALF_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using DU16 = hn::Rebind<uint16_t, DF>;

// Of bits below 2^31, where signed comparisons are cheaper.
HWY_INLINE hn::Mask<DU> IsBelow(VU bits, uint32_t limit) {
  const DI di;
  return hn::RebindMask(DU(), hn::Lt(hn::BitCast(di, bits),
                                     hn::Set(di, static_cast<int32_t>(limit))));
}

// What a gradient may be made of: Float of its elements, which is exact, and
// Load, which takes kLanes of them to float32.
struct OfFloat32 {
  using Element = float;
  static HWY_INLINE VF Load(const float* from) { return hn::LoadU(DF(), from); }
};

struct OfFp16 {
  using Element = uint16_t;
  static HWY_INLINE VF Float(VU code) {
    const DU du;
    const VU sign =
        hn::ShiftLeft<16>(hn::And(code, hn::Set(du, uint32_t{0x8000})));
    const VU moved =
        hn::ShiftLeft<13>(hn::And(code, hn::Set(du, uint32_t{0x7FFF})));
    const VU special = hn::Or(moved, hn::Set(du, 0x7F800000));
    const VU normal = hn::Add(moved, hn::Set(du, 112u << 23));
    // 2^-14 and mantissa * 2^-24; without 2^-14 the subnormal is left.
    const VU least = hn::Set(du, 113u << 23);
    const VF subnormal = hn::Sub(hn::BitCast(DF(), hn::Or(moved, least)),
                                 hn::BitCast(DF(), least));
    VU bits = hn::IfThenElse(IsBelow(moved, 31u << 23), normal, special);
    bits = hn::IfThenElse(IsBelow(moved, 1u << 23), hn::BitCast(du, subnormal),
                          bits);
    return hn::BitCast(DF(), hn::Or(bits, sign));
  }
  static HWY_INLINE VF Load(const uint16_t* from) {
    return Float(hn::PromoteTo(DU(), hn::LoadU(DU16(), from)));
  }
};

struct OfBf16 {
  using Element = uint16_t;
  static HWY_INLINE VF Float(VU code) {
    return hn::BitCast(DF(), hn::ShiftLeft<16>(code));
  }
  static HWY_INLINE VF Load(const uint16_t* from) {
    return Float(hn::PromoteTo(DU(), hn::LoadU(DU16(), from)));
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
