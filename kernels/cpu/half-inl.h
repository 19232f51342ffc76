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
using VU16 = hn::Vec<DU16>;

// Codes of two vectors, of `low` and then of `high`.
using DU16Pair = hn::Repartition<uint16_t, DF>;
using VU16Pair = hn::Vec<DU16Pair>;

// What a gradient may be made of. Load takes kLanes elements to float32; Widen
// what has 16 bits, which is exact, and Narrow finite values back: to the
// nearest, of two the even one, of what is too large the largest. NarrowPair
// does so with two vectors, of which it leaves what their codes stand for.
struct OfFloat32 {
  using Element = float;
  static HWY_INLINE VF Load(const float* from) { return hn::LoadU(DF(), from); }
};

template <class Format>
HWY_INLINE VU16Pair NarrowEach(VF& low, VF& high) {
  const VU16 a = Format::Narrow(low);
  const VU16 b = Format::Narrow(high);
  low = Format::Widen(a);
  high = Format::Widen(b);
  return hn::Combine(DU16Pair(), b, a);
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

struct OfFp16 {
  using Element = uint16_t;
  using D = hn::Rebind<hwy::float16_t, DF>;
  static HWY_INLINE VF Widen(VU16 codes) {
    return hn::PromoteTo(DF(), hn::BitCast(D(), codes));
  }
  static HWY_INLINE VU16 Narrow(VF v) {
    const VF most = hn::Set(DF(), 65504.0f);
    const VF within = hn::Max(hn::Min(v, most), hn::Neg(most));
    return hn::BitCast(DU16(), hn::DemoteTo(D(), within));
  }
  static HWY_INLINE VU16Pair NarrowPair(VF& low, VF& high) {
    return NarrowEach<OfFp16>(low, high);
  }
  static HWY_INLINE VF Load(const uint16_t* from) {
    return Widen(hn::LoadU(DU16(), from));
  }
};

#else

// Compares bits below 2^31, where signed comparisons are cheaper.
HWY_INLINE hn::Mask<DU> IsBelow(VU bits, uint32_t limit) {
  const DI di;
  return hn::RebindMask(DU(), hn::Lt(hn::BitCast(di, bits),
                                     hn::Set(di, static_cast<int32_t>(limit))));
}

HWY_INLINE VU Magnitude(VF v) {
  const DU du;
  return hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FFFFFFF));
}

// Codes of 15 bits, with the sign of v.
HWY_INLINE VU16 WithSign(VF v, VU codes) {
  const DU du;
  const VU sign =
      hn::And(hn::ShiftRight<16>(hn::BitCast(du, v)), hn::Set(du, 0x8000));
  return hn::DemoteTo(DU16(), hn::BitCast(DI(), hn::Or(sign, codes)));
}

struct OfFp16 {
  using Element = uint16_t;
  static HWY_INLINE VF Widen(VU16 codes) {
    const DU du;
    const VU code = hn::PromoteTo(du, codes);
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
  static HWY_INLINE VU16 Narrow(VF v) {
    const DU du;
    const VU magnitude = hn::Min(Magnitude(v), hn::Set(du, 0x477FE000));
    const VU odd =
        hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, uint32_t{1}));
    // The exponent's bias goes from 127 to 15.
    const VU bias = hn::Set(du, 0xFFFu - (112u << 23));
    const VU normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), bias));
    // Added to 2^-1, whose ulp is 2^-24, a value is rounded to a multiple of
    // that.
    const VF half = hn::Set(DF(), 0.5f);
    const VF rounded = hn::Add(hn::BitCast(DF(), magnitude), half);
    const VU subnormal =
        hn::Sub(hn::BitCast(du, rounded), hn::BitCast(du, half));
    return WithSign(
        v, hn::IfThenElse(IsBelow(magnitude, 113u << 23), subnormal, normal));
  }
  static HWY_INLINE VU16Pair NarrowPair(VF& low, VF& high) {
    return NarrowEach<OfFp16>(low, high);
  }
  static HWY_INLINE VF Load(const uint16_t* from) {
    return Widen(hn::LoadU(DU16(), from));
  }
};

#endif  // HWY_AVX2

class OfBf16 {
 public:
  using Element = uint16_t;
  static HWY_INLINE VF Widen(VU16 codes) {
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), codes)));
  }
  static HWY_INLINE VU16Pair NarrowPair(VF& low, VF& high) {
    const VU a = Rounded(low);
    const VU b = Rounded(high);
    const DU16Pair d16;
    const VU upper = hn::Set(DU(), 0xFFFF0000);
    low = hn::BitCast(DF(), hn::And(a, upper));
    high = hn::BitCast(DF(), hn::And(b, upper));
    return hn::ConcatOdd(d16, hn::BitCast(d16, b), hn::BitCast(d16, a));
  }
  static HWY_INLINE VF Load(const uint16_t* from) {
    return Widen(hn::LoadU(DU16(), from));
  }

 private:
  // Bits whose upper half is the code of v.
  static HWY_INLINE VU Rounded(VF v) {
    const DU du;
    const VF most = hn::BitCast(DF(), hn::Set(du, 0x7F7F0000));
    const VU bits = hn::BitCast(du, hn::Max(hn::Min(v, most), hn::Neg(most)));
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, uint32_t{1}));
    return hn::Add(bits, hn::Add(odd, hn::Set(du, uint32_t{0x7FFF})));
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
