#include "kernels/sparse.h"

#include <limits>

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sparse.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillSparse(KernelTable&) {}

#else

constexpr size_t kBlock = 4 * kLanes;

HWY_INLINE bool AllFinite(const VF (&v)[4]) {
  const DF df;
  const auto finite = [df](VF a, VF b) {
    const VF most = hn::Set(df, std::numeric_limits<float>::max());
    return hn::And(hn::Le(hn::Abs(a), most), hn::Le(hn::Abs(b), most));
  };
  return hn::AllTrue(df, hn::And(finite(v[0], v[1]), finite(v[2], v[3])));
}

// The indices of a vector's elements.
HWY_INLINE VU IndicesFrom(size_t i) {
  return hn::Iota(DU(), static_cast<uint32_t>(i));
}

// What a pass has found: where the lists end.
struct Found {
  uint64_t count = 0;
  EncodeStats stats;
};

// Adds what the definition found in elements from `base` on.
HWY_INLINE void AddPart(size_t base, uint64_t count, const EncodeStats& part,
                        Found& found) {
  found.count += count;
  found.stats.num_nonfinite += part.num_nonfinite;
  if (part.num_nonfinite != 0 &&
      part.first_nonfinite + base < found.stats.first_nonfinite) {
    found.stats.first_nonfinite = part.first_nonfinite + base;
  }
}

void Finish(const Found& found, uint64_t* num_survivors, EncodeStats* stats) {
  *num_survivors = found.count;
  stats->num_nonzero += found.count;
  stats->num_nonfinite += found.stats.num_nonfinite;
  if (found.stats.first_nonfinite < stats->first_nonfinite) {
    stats->first_nonfinite = found.stats.first_nonfinite;
  }
}

// Strom's rule.
class ThresholdRule {
 public:
  ThresholdRule(const float* grad, float* residual, float threshold,
                NonFinite nonfinite, uint32_t* survivors)
      : grad_(grad),
        residual_(residual),
        threshold_(threshold),
        nonfinite_(nonfinite),
        survivors_(survivors) {}

  HWY_INLINE void Prefetch(size_t i, size_t ahead) const {
    PrefetchRead<4 * kBlock>(grad_ + i, ahead);
    PrefetchWrite<4 * kBlock>(residual_ + i, ahead);
  }
  HWY_INLINE VF Load(size_t i) const {
    return hn::Add(hn::LoadU(DF(), residual_ + i), hn::LoadU(DF(), grad_ + i));
  }
  HWY_INLINE void Take(VF v, size_t i, Found& found) const {
    const DF df;
    const DU du;
    const VF t = hn::Set(df, threshold_);
    const VF minus_t = hn::Set(df, -threshold_);
    const auto positive = hn::Ge(v, t);
    const auto negative = hn::Le(v, minus_t);
    const VF sent =
        hn::IfThenElse(negative, minus_t, hn::IfThenElseZero(positive, t));
    hn::StoreU(hn::Sub(v, sent), df, residual_ + i);
    const auto is_sent = hn::RebindMask(du, hn::Or(positive, negative));
    // The sign bit becomes the lowest.
    const VU words = hn::Or(hn::Add(IndicesFrom(i), IndicesFrom(i)),
                            hn::ShiftRight<31>(hn::BitCast(du, v)));
    hn::StoreU(hn::Compress(words, is_sent), du, survivors_ + found.count);
    found.count += hn::CountTrue(du, is_sent);
  }
  HWY_NOINLINE void Define(size_t from, size_t to, Found& found) const {
    EncodeStats part;
    uint64_t count = 0;
    uint32_t* words = survivors_ + found.count;
    reference::Sparse().threshold_encode(
        grad_ + from, residual_ + from, to - from, threshold_, nonfinite_,
        words, &count, &part, nullptr, Stream{});
    for (uint64_t s = 0; s < count; ++s) {
      words[s] += static_cast<uint32_t>(from << 1);
    }
    AddPart(from, count, part, found);
  }

 private:
  const float* grad_;
  float* residual_;
  float threshold_;
  NonFinite nonfinite_;
  uint32_t* survivors_;
};

// Lists of large values; with kMomentum, after momentum correction.
template <bool kMomentum>
class LargeRule {
 public:
  LargeRule(const float* grad, MomentumCorrection correction, float* momentum,
            float* residual, float threshold, NonFinite nonfinite,
            uint32_t* indices, float* values)
      : grad_(grad),
        correction_(correction),
        momentum_(momentum),
        residual_(residual),
        threshold_(threshold),
        nonfinite_(nonfinite),
        indices_(indices),
        values_(values) {}

  HWY_INLINE void Prefetch(size_t i, size_t ahead) const {
    PrefetchRead<4 * kBlock>(grad_ + i, ahead);
    PrefetchWrite<4 * kBlock>(residual_ + i, ahead);
    if constexpr (kMomentum) PrefetchWrite<4 * kBlock>(momentum_ + i, ahead);
  }
  HWY_INLINE VF Load(size_t i) const {
    return hn::Add(hn::LoadU(DF(), residual_ + i), Addend(i));
  }
  HWY_INLINE void Take(VF v, size_t i, Found& found) const {
    const DF df;
    const DU du;
    if constexpr (kMomentum) hn::StoreU(Addend(i), df, momentum_ + i);
    hn::StoreU(v, df, residual_ + i);
    const VF magnitude = hn::Abs(v);
    const auto is_large = hn::And(
        hn::Ge(magnitude, hn::Set(df, threshold_)),
        hn::Le(magnitude, hn::Set(df, std::numeric_limits<float>::max())));
    hn::StoreU(hn::Compress(v, is_large), df, values_ + found.count);
    hn::StoreU(hn::Compress(IndicesFrom(i), hn::RebindMask(du, is_large)), du,
               indices_ + found.count);
    found.count += hn::CountTrue(df, is_large);
  }
  HWY_NOINLINE void Define(size_t from, size_t to, Found& found) const {
    EncodeStats part;
    uint64_t count = 0;
    uint32_t* indices = indices_ + found.count;
    float* values = values_ + found.count;
    if constexpr (kMomentum) {
      reference::Sparse().momentum_large_values(
          grad_ + from, correction_, momentum_ + from, residual_ + from,
          to - from, threshold_, nonfinite_, indices, values, &count, &part,
          nullptr, Stream{});
    } else {
      reference::Sparse().large_values(
          grad_ + from, residual_ + from, to - from, threshold_, nonfinite_,
          indices, values, &count, &part, nullptr, Stream{});
    }
    for (uint64_t s = 0; s < count; ++s) {
      indices[s] += static_cast<uint32_t>(from);
    }
    AddPart(from, count, part, found);
  }

 private:
  // What is added to the residual: the gradient, or the new momentum.
  HWY_INLINE VF Addend(size_t i) const {
    const DF df;
    const VF g = hn::LoadU(df, grad_ + i);
    if constexpr (!kMomentum) return g;
    return hn::Add(
        hn::Mul(hn::Set(df, correction_.rate), hn::LoadU(df, momentum_ + i)),
        hn::Mul(hn::Set(df, correction_.scale), g));
  }

  const float* grad_;
  MomentumCorrection correction_;
  float* momentum_;
  float* residual_;
  float threshold_;
  NonFinite nonfinite_;
  uint32_t* indices_;
  float* values_;
};

// One pass over n elements. Blocks with anything not finite, and the tail, go
// by the definition.
template <class Rule>
void Pass(const Rule rule, size_t n, NonFinite nonfinite,
          uint64_t* num_survivors, EncodeStats* stats) {
  Found found;
  const size_t ahead = PrefetchBytes();
  const bool is_checked = nonfinite == NonFinite::kZero;
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    rule.Prefetch(i, ahead);
    const VF v[4] = {rule.Load(i), rule.Load(i + kLanes),
                     rule.Load(i + 2 * kLanes), rule.Load(i + 3 * kLanes)};
    if (is_checked && HWY_UNLIKELY(!AllFinite(v))) {
      rule.Define(i, i + kBlock, found);
      continue;
    }
    for (size_t j = 0; j < 4; ++j) rule.Take(v[j], i + j * kLanes, found);
  }
  if (i < n) rule.Define(i, n, found);
  Finish(found, num_survivors, stats);
}

void ThresholdEncode(const float* grad, float* residual, size_t n,
                     float threshold, NonFinite nonfinite, uint32_t* survivors,
                     uint64_t* num_survivors, EncodeStats* stats, void*,
                     Stream) {
  Pass(ThresholdRule(grad, residual, threshold, nonfinite, survivors), n,
       nonfinite, num_survivors, stats);
}

void LargeValues(const float* grad, float* residual, size_t n, float threshold,
                 NonFinite nonfinite, uint32_t* indices, float* values,
                 uint64_t* num_survivors, EncodeStats* stats, void*, Stream) {
  Pass(LargeRule<false>(grad, {}, nullptr, residual, threshold, nonfinite,
                        indices, values),
       n, nonfinite, num_survivors, stats);
}

void MomentumLargeValues(const float* grad, MomentumCorrection correction,
                         float* momentum, float* residual, size_t n,
                         float threshold, NonFinite nonfinite,
                         uint32_t* indices, float* values,
                         uint64_t* num_survivors, EncodeStats* stats, void*,
                         Stream) {
  Pass(LargeRule<true>(grad, correction, momentum, residual, threshold,
                       nonfinite, indices, values),
       n, nonfinite, num_survivors, stats);
}

void FillSparse(KernelTable& table) {
  table.sparse = {ThresholdEncode, LargeValues, MomentumLargeValues};
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillSparse);

void FillSparse(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillSparse)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
