#include "kernels/cast.h"

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cast.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillCast(KernelTable&) {}

#else

constexpr size_t kCastBlock = 4 * kLanes;
using D8 = hn::Repartition<uint8_t, DU16>;

HWY_INLINE VU Magnitude(VF v) {
  const DU du;
  return hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FFFFFFF));
}

// Of finite values; the others take the slow way. Like the reference, without
// branches.
struct Fp16 : OfFp16 {
  static CastFormatKernels Reference() { return reference::Cast().fp16; }

  static HWY_INLINE VU Cast(VF v) {
    const DU du;
    const VU sign =
        hn::And(hn::ShiftRight<16>(hn::BitCast(du, v)), hn::Set(du, 0x8000));
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
    return hn::Or(sign, hn::IfThenElse(IsBelow(magnitude, 113u << 23),
                                       subnormal, normal));
  }
};

struct Bf16 : OfBf16 {
  static CastFormatKernels Reference() { return reference::Cast().bf16; }

  static HWY_INLINE VU Cast(VF v) {
    const DU du;
    const VU sign = hn::And(hn::ShiftRight<16>(hn::BitCast(du, v)),
                            hn::Set(du, uint32_t{0x8000}));
    const VU magnitude = hn::Min(Magnitude(v), hn::Set(du, 0x7F7F0000));
    const VU odd =
        hn::And(hn::ShiftRight<16>(magnitude), hn::Set(du, uint32_t{1}));
    const VU half = hn::Add(odd, hn::Set(du, uint32_t{0x7FFF}));
    return hn::Or(sign, hn::ShiftRight<16>(hn::Add(magnitude, half)));
  }
};

// Encodes elements [from, to) by the definition.
template <typename Format>
HWY_NOINLINE void EncodeSlowly(const float* grad, float* residual, size_t from,
                               size_t to, NonFinite nonfinite, uint8_t* codes,
                               EncodeStats* stats) {
  EncodeStats part;
  Format::Reference().encode(
      grad + from, residual == nullptr ? nullptr : residual + from, to - from,
      nonfinite, codes + 2 * from, &part, Stream{});
  stats->num_nonzero += part.num_nonzero;
  stats->num_nonfinite += part.num_nonfinite;
  if (part.num_nonfinite != 0 &&
      part.first_nonfinite + from < stats->first_nonfinite) {
    stats->first_nonfinite = part.first_nonfinite + from;
  }
}

template <bool kHasResidual>
HWY_INLINE VF ValueAt(const float* grad, const float* residual, size_t i) {
  const DF df;
  const VF g = hn::LoadU(df, grad + i);
  if constexpr (!kHasResidual) return g;
  return hn::Add(hn::LoadU(df, residual + i), g);
}

HWY_INLINE bool AllFinite(VF a, VF b, VF c, VF d) {
  const DI di;
  const VU most = hn::Max(hn::Max(Magnitude(a), Magnitude(b)),
                          hn::Max(Magnitude(c), Magnitude(d)));
  return hn::AllTrue(di,
                     hn::Lt(hn::BitCast(di, most), hn::Set(di, 0x7F800000)));
}

// Stores the codes of v, the elements from i on, and what they leave; returns
// -1 where a code is not 0, else 0.
template <typename Format, bool kHasResidual>
HWY_INLINE VU EncodeVector(VF v, size_t i, float* residual, uint8_t* codes) {
  const DU du;
  const VU code = Format::Cast(v);
  if constexpr (kHasResidual) {
    hn::StoreU(hn::Sub(v, Format::Float(code)), DF(), residual + i);
  }
  const auto narrow = hn::DemoteTo(DU16(), hn::BitCast(DI(), code));
  hn::StoreU(hn::BitCast(D8(), narrow), D8(), codes + 2 * i);
  const VU magnitude = hn::And(code, hn::Set(du, uint32_t{0x7FFF}));
  return hn::VecFromMask(du, hn::Ne(magnitude, hn::Zero(du)));
}

template <typename Format, bool kHasResidual>
void EncodeAll(const float* HWY_RESTRICT grad, float* HWY_RESTRICT residual,
               size_t n, NonFinite nonfinite, uint8_t* HWY_RESTRICT codes,
               EncodeStats* stats) {
  const size_t ahead = PrefetchBytes();
  uint64_t num_nonzero = 0;
  size_t i = 0;
  for (; i + kCastBlock <= n; i += kCastBlock) {
    PrefetchRead<4 * kCastBlock>(grad + i, ahead);
    if constexpr (kHasResidual)
      PrefetchWrite<4 * kCastBlock>(residual + i, ahead);
    PrefetchWrite<2 * kCastBlock>(codes + 2 * i, ahead);
    VF v[4];
    for (size_t k = 0; k < 4; ++k) {
      v[k] = ValueAt<kHasResidual>(grad, residual, i + k * kLanes);
    }
    if (HWY_UNLIKELY(!AllFinite(v[0], v[1], v[2], v[3]))) {
      EncodeSlowly<Format>(grad, residual, i, i + kCastBlock, nonfinite, codes,
                           stats);
      continue;
    }
    VU count = hn::Zero(DU());
    for (size_t k = 0; k < 4; ++k) {
      count = hn::Add(count, EncodeVector<Format, kHasResidual>(
                                 v[k], i + k * kLanes, residual, codes));
    }
    num_nonzero -= static_cast<uint64_t>(static_cast<int32_t>(
        hn::GetLane(hn::SumOfLanes(DI(), hn::BitCast(DI(), count)))));
  }
  stats->num_nonzero += num_nonzero;
  if (i < n) {
    EncodeSlowly<Format>(grad, residual, i, n, nonfinite, codes, stats);
  }
}

template <typename Format>
void Encode(const float* grad, float* residual, size_t n, NonFinite nonfinite,
            uint8_t* codes, EncodeStats* stats, Stream) {
  if (residual != nullptr) {
    EncodeAll<Format, true>(grad, residual, n, nonfinite, codes, stats);
  } else {
    EncodeAll<Format, false>(grad, nullptr, n, nonfinite, codes, stats);
  }
}

template <typename Format, bool kAdd>
void Decode(const uint8_t* HWY_RESTRICT codes, size_t n,
            float* HWY_RESTRICT out, Stream stream) {
  const DF df;
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kCastBlock <= n; i += kCastBlock) {
    PrefetchRead<2 * kCastBlock>(codes + 2 * i, ahead);
    PrefetchWrite<4 * kCastBlock>(out + i, ahead);
    for (size_t j = i; j < i + kCastBlock; j += kLanes) {
      const auto narrow = hn::BitCast(DU16(), hn::LoadU(D8(), codes + 2 * j));
      VF value = Format::Float(hn::PromoteTo(DU(), narrow));
      if constexpr (kAdd) value = hn::Add(hn::LoadU(df, out + j), value);
      hn::StoreU(value, df, out + j);
    }
  }
  const CastFormatKernels rest = Format::Reference();
  (kAdd ? rest.decode_add : rest.decode)(codes + 2 * i, n - i, out + i, stream);
}

template <typename Format>
CastFormatKernels Kernels() {
  return {Encode<Format>, Decode<Format, false>, Decode<Format, true>};
}

void FillCast(KernelTable& table) {
  table.cast = {Kernels<Fp16>(), Kernels<Bf16>()};
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillCast);

void FillCast(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillCast)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
