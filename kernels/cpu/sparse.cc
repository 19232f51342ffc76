#include "kernels/sparse.h"

#include <limits>

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sparse.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/compact-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillSparse(KernelTable&) {}

#else

namespace {

constexpr size_t kBlock = 4 * kLanes;
// How far behind the last survivor lines of lists are asked for: without it
// each new one is read first, while the stores behind it wait.
constexpr size_t kListAhead = 64;

// Adds what the definition found in elements from `base` on.
void AddNonFinite(size_t base, const EncodeStats& part, EncodeStats* stats) {
  stats->num_nonfinite += part.num_nonfinite;
  if (part.num_nonfinite != 0 &&
      part.first_nonfinite + base < stats->first_nonfinite) {
    stats->first_nonfinite = part.first_nonfinite + base;
  }
}

// A rule: PrefetchList asks for what lists of `count` survivors grow into; Take
// stores a vector of v's remains and appends its survivors to the lists, which
// hold `count`; Define does elements [from, to) by the definition.
// Both return the new count. Rules go by value, so that their members stay in
// registers.

// Gradients, each with the definition of its encoder.
struct Float32Grad : OfFloat32 {
  static auto* Definition() { return reference::Sparse().threshold_encode; }
};
struct Fp16Grad : OfFp16 {
  static auto* Definition() {
    return reference::Sparse().threshold_encode_fp16;
  }
};
struct Bf16Grad : OfBf16 {
  static auto* Definition() {
    return reference::Sparse().threshold_encode_bf16;
  }
};

// Strom's rule.
template <class Grad>
class ThresholdRule {
 public:
  using Element = typename Grad::Element;
  ThresholdRule(const Element* grad, float* residual, float threshold,
                NonFinite nonfinite, uint32_t* survivors)
      : grad_(grad),
        residual_(residual),
        threshold_(threshold),
        nonfinite_(nonfinite),
        survivors_(survivors) {}

  HWY_INLINE void Prefetch(size_t i, size_t ahead) const {
    PrefetchRead<sizeof(Element) * kBlock>(grad_ + i, ahead);
    PrefetchWrite<4 * kBlock>(residual_ + i, ahead);
  }
  HWY_INLINE void PrefetchList(size_t count) const {
    PrefetchForWrite(survivors_ + count + kListAhead);
  }
  HWY_INLINE VF Load(size_t i) const {
    return hn::Add(hn::LoadU(DF(), residual_ + i), Grad::Load(grad_ + i));
  }
  HWY_INLINE size_t Take(VF v, size_t i, VU lanes, size_t count) const {
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
    const VU indices = hn::Add(hn::Set(du, static_cast<uint32_t>(i)), lanes);
    // The sign bit becomes the lowest.
    const VU words = hn::Or(hn::Add(indices, indices),
                            hn::ShiftRight<31>(hn::BitCast(du, v)));
    const Compaction sent_lanes(is_sent);
    hn::StoreU(sent_lanes(words), du, survivors_ + count);
    return count + sent_lanes.count();
  }
  size_t Define(size_t from, size_t to, size_t before,
                EncodeStats* stats) const {
    EncodeStats part;
    uint64_t count = 0;
    uint32_t* words = survivors_ + before;
    Grad::Definition()(grad_ + from, residual_ + from, nullptr, to - from,
                       threshold_, nonfinite_, words, &count, &part, nullptr,
                       Stream{});
    for (uint64_t s = 0; s < count; ++s) {
      words[s] += static_cast<uint32_t>(from << 1);
    }
    AddNonFinite(from, part, stats);
    return before + count;
  }

 private:
  const Element* grad_;
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
            float* residual, const float* threshold, NonFinite nonfinite,
            uint32_t* indices, float* values)
      : grad_(grad),
        rate_(correction.rate),
        scale_(ScaleAt(correction.scale)),
        momentum_(momentum),
        residual_(residual),
        threshold_(ThresholdAt(threshold)),
        nonfinite_(nonfinite),
        indices_(indices),
        values_(values) {}

  HWY_INLINE void Prefetch(size_t i, size_t ahead) const {
    PrefetchRead<4 * kBlock>(grad_ + i, ahead);
    PrefetchWrite<4 * kBlock>(residual_ + i, ahead);
    if constexpr (kMomentum) PrefetchWrite<4 * kBlock>(momentum_ + i, ahead);
  }
  HWY_INLINE void PrefetchList(size_t count) const {
    PrefetchForWrite(indices_ + count + kListAhead);
    PrefetchForWrite(values_ + count + kListAhead);
  }
  HWY_INLINE VF Load(size_t i) const {
    return hn::Add(hn::LoadU(DF(), residual_ + i), Addend(i));
  }
  HWY_INLINE size_t Take(VF v, size_t i, VU lanes, size_t count) const {
    const DF df;
    const DU du;
    if constexpr (kMomentum) hn::StoreU(Addend(i), df, momentum_ + i);
    hn::StoreU(v, df, residual_ + i);
    const VU indices = hn::Add(hn::Set(du, static_cast<uint32_t>(i)), lanes);
    const VF magnitude = hn::Abs(v);
    const auto is_large = hn::And(
        hn::Ge(magnitude, hn::Set(df, threshold_)),
        hn::Le(magnitude, hn::Set(df, std::numeric_limits<float>::max())));
    const Compaction large_lanes(hn::RebindMask(du, is_large));
    hn::StoreU(hn::BitCast(df, large_lanes(hn::BitCast(du, v))), df,
               values_ + count);
    hn::StoreU(large_lanes(indices), du, indices_ + count);
    return count + large_lanes.count();
  }
  size_t Define(size_t from, size_t to, size_t before,
                EncodeStats* stats) const {
    EncodeStats part;
    uint64_t count = 0;
    uint32_t* indices = indices_ + before;
    float* values = values_ + before;
    if constexpr (kMomentum) {
      reference::Sparse().momentum_large_values(
          grad_ + from, {rate_, &scale_}, momentum_ + from, residual_ + from,
          to - from, &threshold_, nonfinite_, indices, values, &count, &part,
          nullptr, Stream{});
    } else {
      reference::Sparse().large_values(
          grad_ + from, residual_ + from, to - from, &threshold_, nonfinite_,
          indices, values, &count, &part, nullptr, Stream{});
    }
    for (uint64_t s = 0; s < count; ++s) {
      indices[s] += static_cast<uint32_t>(from);
    }
    AddNonFinite(from, part, stats);
    return before + count;
  }

 private:
  // What is added to the residual: the gradient, or the new momentum.
  HWY_INLINE VF Addend(size_t i) const {
    const DF df;
    const VF g = hn::LoadU(df, grad_ + i);
    if constexpr (!kMomentum) return g;
    return hn::Add(hn::Mul(hn::Set(df, rate_), hn::LoadU(df, momentum_ + i)),
                   hn::Mul(hn::Set(df, scale_), g));
  }

  const float* grad_;
  float rate_;
  float scale_;
  float* momentum_;
  float* residual_;
  float threshold_;
  NonFinite nonfinite_;
  uint32_t* indices_;
  float* values_;
};

template <class Rule>
HWY_NOINLINE size_t Define(const Rule rule, size_t from, size_t to,
                           size_t count, EncodeStats* stats) {
  return rule.Define(from, to, count, stats);
}

// One pass over n elements. Blocks with anything not finite, and the tail, go
// by the definition.
template <NonFinite kNonFinite, class Rule>
void Pass(const Rule rule, size_t n, uint64_t* num_survivors,
          EncodeStats* stats) {
  const size_t ahead = PrefetchBytes();
  const VU lanes = hn::Iota(DU(), 0);  // slow: made once
  size_t count = 0;
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    rule.Prefetch(i, ahead);
    rule.PrefetchList(count);
    const VF v0 = rule.Load(i);
    const VF v1 = rule.Load(i + kLanes);
    const VF v2 = rule.Load(i + 2 * kLanes);
    const VF v3 = rule.Load(i + 3 * kLanes);
    if constexpr (kNonFinite == NonFinite::kZero) {
      if (HWY_UNLIKELY(!SumIsFinite(v0, v1, v2, v3))) {
        count = Define(rule, i, i + kBlock, count, stats);
        continue;
      }
    }
    count = rule.Take(v0, i, lanes, count);
    count = rule.Take(v1, i + kLanes, lanes, count);
    count = rule.Take(v2, i + 2 * kLanes, lanes, count);
    count = rule.Take(v3, i + 3 * kLanes, lanes, count);
  }
  if (i < n) count = Define(rule, i, n, count, stats);
  *num_survivors = count;
  stats->num_nonzero += count;
}

template <class Rule>
void Pass(const Rule rule, size_t n, NonFinite nonfinite,
          uint64_t* num_survivors, EncodeStats* stats) {
  if (nonfinite == NonFinite::kZero) {
    Pass<NonFinite::kZero>(rule, n, num_survivors, stats);
  } else {
    Pass<NonFinite::kPropagate>(rule, n, num_survivors, stats);
  }
}

template <class Grad>
void ThresholdEncode(const typename Grad::Element* grad, float* residual,
                     float* momentum, size_t n, float threshold,
                     NonFinite nonfinite, uint32_t* survivors,
                     uint64_t* num_survivors, EncodeStats* stats, void*,
                     Stream) {
  Pass(ThresholdRule<Grad>(grad, residual, threshold, nonfinite, survivors), n,
       nonfinite, num_survivors, stats);
  if (momentum == nullptr) return;
  for (uint64_t s = 0; s < *num_survivors; ++s) momentum[survivors[s] >> 1] = 0;
}

void LargeValues(const float* grad, float* residual, size_t n,
                 const float* threshold, NonFinite nonfinite, uint32_t* indices,
                 float* values, uint64_t* num_survivors, EncodeStats* stats,
                 void*, Stream) {
  Pass(LargeRule<false>(grad, {}, nullptr, residual, threshold, nonfinite,
                        indices, values),
       n, nonfinite, num_survivors, stats);
}

void MomentumLargeValues(const float* grad, MomentumCorrection correction,
                         float* momentum, float* residual, size_t n,
                         const float* threshold, NonFinite nonfinite,
                         uint32_t* indices, float* values,
                         uint64_t* num_survivors, EncodeStats* stats, void*,
                         Stream) {
  Pass(LargeRule<true>(grad, correction, momentum, residual, threshold,
                       nonfinite, indices, values),
       n, nonfinite, num_survivors, stats);
}

}  // namespace

void FillSparse(KernelTable& table) {
  table.sparse = {ThresholdEncode<Float32Grad>, ThresholdEncode<Fp16Grad>,
                  ThresholdEncode<Bf16Grad>, LargeValues, MomentumLargeValues};
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
