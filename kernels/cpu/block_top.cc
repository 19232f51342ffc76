#include "kernels/block_top.h"

#include <limits>

#include "kernels/block_top_runs.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_top.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/compact-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillBlockTop(KernelTable&) {}

#else

namespace {

constexpr size_t kTopStep = 4 * kLanes;
constexpr float kListsNothing = std::numeric_limits<float>::infinity();

// Elements of a block that may be sent, by their place.
struct TopList {
  size_t count = 0;
  uint32_t places[kTopBlock + kLanes];
  float values[kTopBlock + kLanes];

  HWY_INLINE void Append(VF v, size_t i, VU lanes, VF threshold) {
    const DF df;
    const DU du;
    const VF magnitude = hn::Abs(v);
    const auto is_large = hn::And(
        hn::Ge(magnitude, threshold),
        hn::Le(magnitude, hn::Set(df, std::numeric_limits<float>::max())));
    const Compaction large_lanes(hn::RebindMask(du, is_large));
    const VU at = hn::Add(hn::Set(du, static_cast<uint32_t>(i)), lanes);
    hn::StoreU(hn::BitCast(df, large_lanes(hn::BitCast(du, v))), df,
               values + count);
    hn::StoreU(large_lanes(at), du, places + count);
    count += large_lanes.count();
  }
  void Append(float v, size_t i, float threshold) {
    if (!(std::abs(v) >= threshold) || !std::isfinite(v)) return;
    places[count] = static_cast<uint32_t>(i);
    values[count++] = v;
  }
};

struct TopGradient {
  const float* grad;  // null: the values are in the residual already
  float decay;
  NonFinite nonfinite;
  EncodeStats* stats;
  size_t base;  // index of the block's first element
};

// Elements [i, end) by the definition.
HWY_NOINLINE void DefineTop(const TopGradient& g, float* residual, size_t i,
                            size_t end, float threshold, TopList& list) {
  for (; i < end; ++i) {
    if (g.grad != nullptr) {
      residual[i] = Value(g.decay * residual[i], g.grad[i], g.base + i,
                          g.nonfinite, g.stats);
    }
    list.Append(residual[i], i, threshold);
  }
}

// Adds the gradient to a block's residual; lists what reaches the threshold.
template <bool kAdd>
void ListBlock(const TopGradient& g, float* residual, size_t size,
               float threshold, TopList& list) {
  const DF df;
  const size_t ahead = PrefetchBytes();
  const VF t = hn::Set(df, threshold);
  const VF decay = hn::Set(df, g.decay);
  const VU lanes = hn::Iota(DU(), 0);
  const auto load = [&](size_t i) HWY_ATTR {
    const VF r = hn::LoadU(df, residual + i);
    if constexpr (!kAdd) return r;
    return hn::Add(hn::Mul(decay, r), hn::LoadU(df, g.grad + i));
  };
  list.count = 0;
  size_t i = 0;
  for (; i + kTopStep <= size; i += kTopStep) {
    if constexpr (kAdd) {
      PrefetchRead<4 * kTopStep>(g.grad + i, ahead);
      PrefetchWrite<4 * kTopStep>(residual + i, ahead);
    }
    const VF v0 = load(i);
    const VF v1 = load(i + kLanes);
    const VF v2 = load(i + 2 * kLanes);
    const VF v3 = load(i + 3 * kLanes);
    if constexpr (kAdd) {
      if (HWY_UNLIKELY(!SumIsFinite(v0, v1, v2, v3))) {
        DefineTop(g, residual, i, i + kTopStep, threshold, list);
        continue;
      }
      hn::StoreU(v0, df, residual + i);
      hn::StoreU(v1, df, residual + i + kLanes);
      hn::StoreU(v2, df, residual + i + 2 * kLanes);
      hn::StoreU(v3, df, residual + i + 3 * kLanes);
    }
    list.Append(v0, i, lanes, t);
    list.Append(v1, i + kLanes, lanes, t);
    list.Append(v2, i + 2 * kLanes, lanes, t);
    list.Append(v3, i + 3 * kLanes, lanes, t);
  }
  DefineTop(g, residual, i, size, threshold, list);
}

// A magnitude that somewhat more than k of the block's values have, mostly.
float SampledTopThreshold(const float* v, size_t size, size_t k) {
  constexpr size_t kStride = 16;
  std::array<uint32_t, kTopBlock / kStride> bits;
  size_t count = 0;
  for (size_t i = 0; i < size; i += kStride) bits[count++] = SendableBits(v[i]);
  const size_t rank = std::min(count, k / kStride + 6);
  std::nth_element(bits.data(), bits.data() + rank - 1, bits.data() + count,
                   std::greater<>());
  return FloatOf(std::max<uint32_t>(bits[rank - 1], 1));
}

// The k that are sent of a block whose values are in `residual`. Returns what
// to list of the next block: what was chosen, and some that are not much less.
float ChooseListed(float* residual, size_t size, size_t k, TopList& list,
                   uint16_t* places, float* values) {
  constexpr float kLess = 0.9f;
  if (list.count < k) {
    const float threshold = SampledTopThreshold(residual, size, k);
    ListBlock<false>({}, residual, size, threshold, list);
  }
  if (list.count < k) {
    reference::ChooseTop(residual, size, k, places, values);
    return kListsNothing;
  }
  float least = kListsNothing;
  reference::ForEachTop(
      list.count, k,
      [&list](size_t i) {
        return reference::TopKey(list.values[i], list.places[i]);
      },
      [&](size_t i) {
        *places++ = static_cast<uint16_t>(list.places[i]);
        *values++ = list.values[i];
        least = std::min(least, std::abs(list.values[i]));
      });
  return std::max(kLess * least, FloatOf(1));
}

void TopEncode(const float* grad, float* residual, size_t n, TopRule rule,
               NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
               void* scratch, Stream) {
  const TopScratch chosen(scratch, n, rule.keep);
  TopList list;
  float threshold = kListsNothing;
  for (size_t from = 0; from < n; from += kTopBlock) {
    const size_t size = std::min(kTopBlock, n - from);
    ListBlock<true>({grad + from, rule.decay, nonfinite, stats, from},
                    residual + from, size, threshold, list);
    const size_t at = from / kTopBlock * rule.keep;
    threshold = ChooseListed(residual + from, size, TopOfBlock(size, rule.keep),
                             list, chosen.places + at, chosen.values + at);
  }
  reference::SendTop(chosen, n, rule.keep, residual, payload, stats);
}

}  // namespace

// Decoding fills with zeros, which is vector code in the reference.
void FillBlockTop(KernelTable& table) { table.block_top.encode = TopEncode; }

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillBlockTop);

void FillBlockTop(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillBlockTop)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
