#include "kernels/low_rank.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/low_rank.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillLowRank(KernelTable&) {}

#else

constexpr size_t kVectors = kLowRankLanes / kLanes;
// What fits into a first-level cache beside the rows that make it.
constexpr size_t kTile = 1024;

template <size_t kGroup>
using GroupOf = std::integral_constant<size_t, kGroup>;

// Calls body(GroupOf<size>(), k) for ranks [k, k + size): a row is read once
// for as many ranks as have room in registers.
template <class Body>
HWY_INLINE void ForGroups(size_t rank, const Body& body) {
  size_t k = 0;
  if constexpr (kLanes >= 8) {
    for (; k + 4 <= rank; k += 4) body(GroupOf<4>(), k);
  }
  for (; k + 2 <= rank; k += 2) body(GroupOf<2>(), k);
  if (k < rank) body(GroupOf<1>(), k);
}

HWY_NOINLINE void AddSlowly(const float* grad, float* residual, size_t from,
                            size_t to, EncodeStats* stats) {
  for (size_t i = from; i < to; ++i) {
    float m = residual[i] + grad[i];
    // Not a number: m - m is 0 for finite m only.
    if (m - m != 0.0f) {
      ++stats->num_nonfinite;
      if (i < stats->first_nonfinite) stats->first_nonfinite = i;
      m = residual[i] + 0.0f;
    }
    residual[i] = m;
  }
}

// Elements [from, to) of residual += grad.
template <bool kZero>
HWY_INLINE void AddGradient(const float* HWY_RESTRICT grad,
                            float* HWY_RESTRICT residual, size_t from,
                            size_t to, EncodeStats* stats) {
  const DF df;
  const DI di;
  const VI magnitude = hn::Set(di, 0x7FFFFFFF);
  const VI infinity = hn::Set(di, 0x7F800000);
  size_t i = from;
  for (; i + kLowRankLanes <= to; i += kLowRankLanes) {
    PrefetchRead<4 * kLowRankLanes>(grad + i);
    PrefetchWrite<4 * kLowRankLanes>(residual + i);
    VF m[kVectors];
    VI most = hn::Zero(di);
    for (size_t v = 0; v < kVectors; ++v) {
      m[v] = hn::Add(hn::LoadU(df, residual + i + v * kLanes),
                     hn::LoadU(df, grad + i + v * kLanes));
      most = hn::Max(most, hn::And(hn::BitCast(di, m[v]), magnitude));
    }
    if (kZero && HWY_UNLIKELY(!hn::AllTrue(di, hn::Lt(most, infinity)))) {
      AddSlowly(grad, residual, i, i + kLowRankLanes, stats);
      continue;
    }
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(m[v], df, residual + i + v * kLanes);
    }
  }
  if (kZero) return AddSlowly(grad, residual, i, to, stats);
  for (; i < to; ++i) residual[i] += grad[i];
}

template <size_t kGroup>
HWY_INLINE void DotRow(const float* HWY_RESTRICT row, size_t length,
                       const float* HWY_RESTRICT right, size_t cols,
                       float* HWY_RESTRICT left) {
  const DF df;
  VF sums[kGroup][kVectors];
  for (auto& sum : sums) {
    for (VF& lanes : sum) lanes = hn::Zero(df);
  }
  size_t j = 0;
  for (; j + kLowRankLanes <= length; j += kLowRankLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = j + v * kLanes;
      const VF m = hn::LoadU(df, row + at);
      for (size_t k = 0; k < kGroup; ++k) {
        const VF basis = hn::LoadU(df, right + k * cols + at);
        sums[k][v] = hn::Add(sums[k][v], hn::Mul(m, basis));
      }
    }
  }
  for (size_t k = 0; k < kGroup; ++k) {
    alignas(64) float lanes[kLowRankLanes];
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(sums[k][v], df, lanes + v * kLanes);
    }
    for (size_t l = 0; j + l < length; ++l) {
      lanes[l] += row[j + l] * right[k * cols + j + l];
    }
    for (size_t half = kLowRankLanes / 2; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    left[k] = LimitFactor(lanes[0]);
  }
}

// row -= sum of left[k] right[k], or += for kAdd; one rank after the other.
template <bool kAdd, size_t kGroup>
HWY_INLINE void UpdateRow(const float* HWY_RESTRICT left,
                          const float* HWY_RESTRICT right, size_t cols,
                          size_t length, float* HWY_RESTRICT row) {
  const DF df;
  VF factors[kGroup];
  for (size_t k = 0; k < kGroup; ++k) factors[k] = hn::Set(df, left[k]);
  size_t j = 0;
  for (; j + kLanes <= length; j += kLanes) {
    if (j % kLowRankLanes == 0) PrefetchWrite<4 * kLowRankLanes>(row + j);
    VF value = hn::LoadU(df, row + j);
    for (size_t k = 0; k < kGroup; ++k) {
      const VF product =
          hn::Mul(factors[k], hn::LoadU(df, right + k * cols + j));
      value = kAdd ? hn::Add(value, product) : hn::Sub(value, product);
    }
    hn::StoreU(value, df, row + j);
  }
  for (; j < length; ++j) {
    for (size_t k = 0; k < kGroup; ++k) {
      const float product = left[k] * right[k * cols + j];
      row[j] = kAdd ? row[j] + product : row[j] - product;
    }
  }
}

// right[k] += left[k] row.
template <size_t kGroup>
HWY_INLINE void AccumulateRow(const float* HWY_RESTRICT row, size_t length,
                              const float* HWY_RESTRICT left, size_t cols,
                              float* HWY_RESTRICT right) {
  const DF df;
  VF factors[kGroup];
  for (size_t k = 0; k < kGroup; ++k) factors[k] = hn::Set(df, left[k]);
  size_t j = 0;
  for (; j + kLanes <= length; j += kLanes) {
    const VF m = hn::LoadU(df, row + j);
    for (size_t k = 0; k < kGroup; ++k) {
      float* at = right + k * cols + j;
      hn::StoreU(hn::Add(hn::LoadU(df, at), hn::Mul(factors[k], m)), df, at);
    }
  }
  for (; j < length; ++j) {
    for (size_t k = 0; k < kGroup; ++k) right[k * cols + j] += left[k] * row[j];
  }
}

HWY_INLINE void SubtractRow(const float* left, const float* right,
                            const LowRankShape& shape, size_t length,
                            float* row) {
  ForGroups(shape.rank, [&](auto group, size_t k) HWY_ATTR {
    UpdateRow<false, group>(left + k, right + k * shape.cols, shape.cols,
                            length, row);
  });
}

// A row stays in the first-level cache from its sum to its residual: one pass
// over memory.
template <bool kZero>
void FitLeftRows(const float* grad, float* residual, const LowRankShape& shape,
                 const float* right, float* left, EncodeStats* stats) {
  for (size_t from = 0; from < shape.n; from += shape.cols) {
    const size_t to = std::min(from + shape.cols, shape.n);
    AddGradient<kZero>(grad, residual, from, to, stats);
    float* row = residual + from;
    ForGroups(shape.rank, [&](auto group, size_t k) HWY_ATTR {
      DotRow<group>(row, to - from, right + k * shape.cols, shape.cols,
                    left + k);
    });
    SubtractRow(left, right, shape, to - from, row);
    left += shape.rank;
  }
}

// Two passes: no element of `right` is known before the last row is read.
template <bool kZero>
void FitRightRows(const float* grad, float* residual, const LowRankShape& shape,
                  const float* left, float* right, EncodeStats* stats) {
  std::fill_n(right, shape.rank * shape.cols, 0.0f);
  const float* factors = left;
  for (size_t from = 0; from < shape.n; from += shape.cols) {
    const size_t to = std::min(from + shape.cols, shape.n);
    AddGradient<kZero>(grad, residual, from, to, stats);
    ForGroups(shape.rank, [&](auto group, size_t k) HWY_ATTR {
      AccumulateRow<group>(residual + from, to - from, factors + k, shape.cols,
                           right + k * shape.cols);
    });
    factors += shape.rank;
  }
  for (size_t k = 0; k < shape.rank * shape.cols; ++k) {
    right[k] = LimitFactor(right[k]);
  }
  for (size_t from = 0; from < shape.n; from += shape.cols) {
    SubtractRow(left, right, shape, std::min(shape.cols, shape.n - from),
                residual + from);
    left += shape.rank;
  }
}

void FitLeft(const float* grad, float* residual, LowRankShape shape,
             const float* right, NonFinite nonfinite, float* left,
             EncodeStats* stats, Stream) {
  if (nonfinite == NonFinite::kZero) {
    FitLeftRows<true>(grad, residual, shape, right, left, stats);
  } else {
    FitLeftRows<false>(grad, residual, shape, right, left, stats);
  }
}

void FitRight(const float* grad, float* residual, LowRankShape shape,
              const float* left, NonFinite nonfinite, float* right,
              EncodeStats* stats, Stream) {
  if (nonfinite == NonFinite::kZero) {
    FitRightRows<true>(grad, residual, shape, left, right, stats);
  } else {
    FitRightRows<false>(grad, residual, shape, left, right, stats);
  }
}

// tile = the product's elements of one row from a column on.
HWY_INLINE void ExpandTile(const float* left, const float* right,
                           const LowRankShape& shape, size_t length,
                           float* tile) {
  std::fill_n(tile, length, 0.0f);
  ForGroups(shape.rank, [&](auto group, size_t k) HWY_ATTR {
    UpdateRow<true, group>(left + k, right + k * shape.cols, shape.cols, length,
                           tile);
  });
}

template <bool kAdd>
void Expand(const float* left, const float* right, LowRankShape shape,
            float* out, Stream) {
  alignas(64) float tile[kTile];
  for (size_t from = 0; from < shape.n; from += shape.cols) {
    const size_t length = std::min(shape.cols, shape.n - from);
    for (size_t j = 0; j < length; j += kTile) {
      const size_t width = std::min(kTile, length - j);
      float* at = out + from + j;
      ExpandTile(left, right + j, shape, width, kAdd ? tile : at);
      if (!kAdd) continue;
      const float one = 1.0f;
      UpdateRow<true, 1>(&one, tile, 0, width, at);
    }
    left += shape.rank;
  }
}

void FillLowRank(KernelTable& table) {
  table.low_rank.fit_left = FitLeft;
  table.low_rank.fit_right = FitRight;
  table.low_rank.expand = Expand<false>;
  table.low_rank.expand_add = Expand<true>;
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillLowRank);

void FillLowRank(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillLowRank)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
