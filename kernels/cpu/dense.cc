#include "kernels/dense.h"

#include <limits>

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"
#include "kernels/value.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dense.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/sgd-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillDense(KernelTable&) {}

#else

constexpr size_t kDenseBlock = 4 * kLanes;

void AddF32(const float* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT sum,
            Stream stream) {
  const DF df;
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kDenseBlock <= n; i += kDenseBlock) {
    PrefetchRead<4 * kDenseBlock>(x + i, ahead);
    PrefetchWrite<4 * kDenseBlock>(sum + i, ahead);
    for (size_t j = i; j < i + kDenseBlock; j += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(df, sum + j), hn::LoadU(df, x + j)), df,
                 sum + j);
    }
  }
  reference::AddF32(x + i, n - i, sum + i, stream);
}

void ScaleF32(float factor, size_t n, float* HWY_RESTRICT x, Stream stream) {
  const DF df;
  const auto by = hn::Set(df, factor);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kDenseBlock <= n; i += kDenseBlock) {
    PrefetchWrite<4 * kDenseBlock>(x + i, ahead);
    for (size_t j = i; j < i + kDenseBlock; j += kLanes) {
      hn::StoreU(hn::Mul(by, hn::LoadU(df, x + j)), df, x + j);
    }
  }
  reference::ScaleF32(factor, n - i, x + i, stream);
}

HWY_NOINLINE void CountSlowly(const float* x, size_t from, size_t to,
                              EncodeStats* stats) {
  EncodeStats part;
  reference::CountNonFinite(x + from, to - from, &part, Stream{});
  AddPart(part, from, stats);
}

void CountNonFinite(const float* x, size_t n, EncodeStats* stats, Stream) {
  const DF df;
  const DI di;
  const VI magnitude = hn::Set(di, 0x7FFFFFFF);
  const VI infinity = hn::Set(di, 0x7F800000);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kDenseBlock <= n; i += kDenseBlock) {
    PrefetchRead<4 * kDenseBlock>(x + i, ahead);
    VI most = hn::Zero(di);
    for (size_t j = i; j < i + kDenseBlock; j += kLanes) {
      const VI bits = hn::BitCast(di, hn::LoadU(df, x + j));
      most = hn::Max(most, hn::And(bits, magnitude));
    }
    if (HWY_UNLIKELY(!hn::AllTrue(di, hn::Lt(most, infinity)))) {
      CountSlowly(x, i, i + kDenseBlock, stats);
    }
  }
  if (i < n) CountSlowly(x, i, n, stats);
}

void SgdMomentum(const float* HWY_RESTRICT grad, size_t n, SgdParameters params,
                 float* HWY_RESTRICT weight, float* HWY_RESTRICT momentum,
                 Stream stream) {
  const SgdStep step(params);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kDenseBlock <= n; i += kDenseBlock) {
    PrefetchRead<4 * kDenseBlock>(grad + i, ahead);
    PrefetchWrite<4 * kDenseBlock>(weight + i, ahead);
    PrefetchWrite<4 * kDenseBlock>(momentum + i, ahead);
    for (size_t j = i; j < i + kDenseBlock; j += kLanes) {
      step(hn::LoadU(DF(), grad + j), weight + j, momentum + j);
    }
  }
  reference::SgdMomentum(grad + i, n - i, params, weight + i, momentum + i,
                         stream);
}

// Adds the squares of a run to `lanes`.
template <bool kHasResidual>
HWY_INLINE void AddSquares(const float* HWY_RESTRICT grad,
                           const float* HWY_RESTRICT residual,
                           double* HWY_RESTRICT lanes) {
  const hn::CappedTag<double, kPowerRun> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const auto most = hn::Set(df, std::numeric_limits<float>::max());
  for (size_t k = 0; k < kPowerRun; k += hn::Lanes(dd)) {
    auto v = hn::LoadU(df, grad + k);
    if constexpr (kHasResidual) v = hn::Add(hn::LoadU(df, residual + k), v);
    v = hn::IfThenElseZero(hn::Le(hn::Abs(v), most), v);
    const auto value = hn::PromoteTo(dd, v);
    const auto sum = hn::Add(hn::Load(dd, lanes + k), hn::Mul(value, value));
    hn::Store(sum, dd, lanes + k);
  }
}

// Waits for scattered lines, so it asks for many at a time.
template <bool kHasResidual>
double PowerOfRuns(const float* grad, const float* residual, size_t n) {
  constexpr size_t kAhead = 24 * kPowerRun;
  alignas(64) double lanes[kPowerLanes] = {};
  for (size_t j = 0; j < kMaxPowerSamples; j += kPowerRun) {
    if (j + kAhead < kMaxPowerSamples) {
      const size_t next = PowerSample(j + kAhead, n);
      hwy::Prefetch(grad + next);
      if constexpr (kHasResidual) hwy::Prefetch(residual + next);
    }
    const size_t i = PowerSample(j, n);
    AddSquares<kHasResidual>(grad + i, kHasResidual ? residual + i : nullptr,
                             lanes + j % kPowerLanes);
  }
  return MeanOfPowerLanes(lanes, kMaxPowerSamples);
}

void SampledPower(const float* grad, const float* residual, size_t n,
                  double* mean_square, Stream stream) {
  if (n <= kMaxPowerSamples) {
    return reference::SampledPower(grad, residual, n, mean_square, stream);
  }
  *mean_square = residual == nullptr ? PowerOfRuns<false>(grad, residual, n)
                                     : PowerOfRuns<true>(grad, residual, n);
}

void FillDense(KernelTable& table) {
  table.add_f32 = AddF32;
  table.scale_f32 = ScaleF32;
  table.count_nonfinite = CountNonFinite;
  table.sgd_momentum = SgdMomentum;
  table.sampled_power = SampledPower;
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillDense);

void FillDense(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillDense)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
