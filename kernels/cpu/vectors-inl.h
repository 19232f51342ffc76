// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_VECTORS_INL_H_
#undef TELEGRAD_KERNELS_CPU_VECTORS_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_VECTORS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLineBytes = 64;

// The lines of kBytes from `ahead` bytes behind `at` on; a kernel asks
// PrefetchBytes() for `ahead` once per call. Past the end of arrays it is
// harmless.
template <size_t kBytes>
HWY_INLINE void PrefetchRead(const void* at, size_t ahead) {
  const char* from = static_cast<const char*>(at) + ahead;
  for (size_t b = 0; b < kBytes; b += kLineBytes) {
    __builtin_prefetch(from + b, 0);
  }
}
template <size_t kBytes>
HWY_INLINE void PrefetchWrite(const void* at, size_t ahead) {
  const char* from = static_cast<const char*>(at) + ahead;
  for (size_t b = 0; b < kBytes; b += kLineBytes) PrefetchForWrite(from + b);
}
// For code that does not ask.
template <size_t kBytes>
HWY_INLINE void PrefetchRead(const void* at) {
  PrefetchRead<kBytes>(at, PrefetchBytes());
}
template <size_t kBytes>
HWY_INLINE void PrefetchWrite(const void* at) {
  PrefetchWrite<kBytes>(at, PrefetchBytes());
}

#if HWY_TARGET != HWY_SCALAR

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
constexpr size_t kLanes = hn::MaxLanes(DF());
static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16);

// Where masks are registers of their own and vectors have to be made of them.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr bool kHasMaskRegisters = true;
#else
constexpr bool kHasMaskRegisters = false;
#endif

// Whether the sum of vectors is finite in every lane: then all of them are. The
// sum of finite ones may be none, so whoever is told so has to look again.
HWY_INLINE bool SumIsFinite(VF sum) {
  const DF df;
  return hn::AllTrue(
      df, hn::Le(hn::Abs(sum), hn::Set(df, std::numeric_limits<float>::max())));
}
HWY_INLINE bool SumIsFinite(VF a, VF b, VF c, VF d) {
  return SumIsFinite(hn::Add(hn::Add(a, b), hn::Add(c, d)));
}

// Byte p of lane l is byte p of lane l of the p-th vector.
HWY_INLINE VU BytesOf(VU a, VU b, VU c, VU d) {
  const hn::Repartition<uint16_t, DU> d16;
  const hn::Repartition<uint8_t, DU> d8;
  const auto even = hn::OddEven(hn::BitCast(d16, c), hn::BitCast(d16, a));
  const auto odd = hn::OddEven(hn::BitCast(d16, d), hn::BitCast(d16, b));
  return hn::BitCast(DU(),
                     hn::OddEven(hn::BitCast(d8, odd), hn::BitCast(d8, even)));
}
// Byte p of lane l is 0xFF where lane l of the p-th mask is set, else 0.
HWY_INLINE VU BytesOf(hn::Mask<DU> a, hn::Mask<DU> b, hn::Mask<DU> c,
                      hn::Mask<DU> d) {
  const DU du;
  return BytesOf(hn::VecFromMask(du, a), hn::VecFromMask(du, b),
                 hn::VecFromMask(du, c), hn::VecFromMask(du, d));
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
