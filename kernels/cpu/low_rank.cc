#include "kernels/low_rank.h"

#include <algorithm>

#include "kernels/cpu/targets.h"
#include "kernels/low_rank_payload.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/low_rank.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/low_rank_rows-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillLowRank(KernelTable&) {}

#else

// What fits into a first-level cache beside the rows that make it.
constexpr size_t kTile = 1024;

HWY_INLINE void SubtractRow(const float* left, const float* right,
                            const LowRankShape& shape, size_t length,
                            const float* next, float* row) {
  ForGroups(shape.rank, [&](auto group, size_t k) HWY_ATTR {
    UpdateRow<false, group>(left + k, right + k * shape.cols, shape.cols,
                            length, next, row);
  });
}

// Adds and sums the row at `from` as AddRow and DotRow do, and ends the row
// before it as SubtractRow does: `right` is loaded once for both, and memory is
// read and written without a pause. left: the row's; the one before is known.
template <bool kZero, size_t kGroup>
HWY_INLINE void PipelineRow(const float* HWY_RESTRICT grad, float* residual,
                            size_t from, const float* HWY_RESTRICT right,
                            size_t cols, float* left, EncodeStats* stats) {
  const DF df;
  DotSums<kGroup> sums;
  const float* before_left = left - kGroup;
  VF factors[kGroup];
  for (size_t k = 0; k < kGroup; ++k) {
    factors[k] = hn::Set(df, before_left[k]);
  }
  float* before = residual + from - cols;
  const size_t ahead = PrefetchBytes();
  for (size_t j = 0; j < cols; j += kLowRankLanes) {
    PrefetchRead<4 * kLowRankLanes>(grad + from + j, ahead);
    PrefetchWrite<4 * kLowRankLanes>(residual + from + j, ahead);
    VF m[kVectors];
    AddBlock<kZero>(grad, residual, from + j, stats, m);
    sums.AddProducts(m, right + j, cols);
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = j + v * kLanes;
      VF value = hn::LoadU(df, before + at);
      for (size_t k = 0; k < kGroup; ++k) {
        const VF basis = hn::LoadU(df, right + k * cols + at);
        value = hn::Sub(value, hn::Mul(factors[k], basis));
      }
      hn::StoreU(value, df, before + at);
    }
  }
  sums.Finish(residual, 0, right, cols, left);
}

// One pass over memory, for ranks of one group.
template <bool kZero, size_t kGroup>
void PipelineRows(const float* grad, float* residual, const LowRankShape& shape,
                  const float* right, float* left, EncodeStats* stats) {
  const size_t cols = shape.cols;
  for (size_t from = 0; from < shape.n; from += cols) {
    const size_t to = std::min(from + cols, shape.n);
    const bool is_whole = to - from == cols;
    if (from == 0 || !is_whole) {
      AddRow<kZero>(grad, residual, from, to, stats);
      DotRow<kGroup>(residual + from, to - from, right, cols, left);
    } else {
      PipelineRow<kZero, kGroup>(grad, residual, from, right, cols, left,
                                 stats);
    }
    const bool is_followed = to + cols <= shape.n;
    if (!is_followed) {
      SubtractRow(left, right, shape, to - from, grad + to, residual + from);
    }
    left += kGroup;
  }
}

// A row stays in the cache from its sum to its residual.
template <bool kZero>
void FitLeftRows(const float* grad, float* residual, const LowRankShape& shape,
                 const float* right, float* left, EncodeStats* stats) {
  for (size_t from = 0; from < shape.n; from += shape.cols) {
    const size_t to = std::min(from + shape.cols, shape.n);
    AddRow<kZero>(grad, residual, from, to, stats);
    float* row = residual + from;
    ForGroups(shape.rank, [&](auto group, size_t k) HWY_ATTR {
      DotRow<group>(row, to - from, right + k * shape.cols, shape.cols,
                    left + k);
    });
    SubtractRow(left, right, shape, to - from, grad + to, row);
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
    AddRow<kZero>(grad, residual, from, to, stats);
    ForGroups(shape.rank, [&](auto group, size_t k) HWY_ATTR {
      AccumulateRow<group>(residual + from, to - from, factors + k, shape.cols,
                           grad + to, right + k * shape.cols);
    });
    factors += shape.rank;
  }
  for (size_t k = 0; k < shape.rank * shape.cols; ++k) {
    right[k] = LimitFactor(right[k]);
  }
  for (size_t from = 0; from < shape.n; from += shape.cols) {
    float* row = residual + from;
    SubtractRow(left, right, shape, std::min(shape.cols, shape.n - from),
                row + PrefetchBytes() / sizeof(float), row);
    left += shape.rank;
  }
}

template <bool kZero>
void FitLeftByRank(const float* grad, float* residual,
                   const LowRankShape& shape, const float* right, float* left,
                   EncodeStats* stats) {
  switch (shape.rank) {
    case 1:
      return PipelineRows<kZero, 1>(grad, residual, shape, right, left, stats);
    case 2:
      return PipelineRows<kZero, 2>(grad, residual, shape, right, left, stats);
    case 4:
      return PipelineRows<kZero, 4>(grad, residual, shape, right, left, stats);
    default:
      return FitLeftRows<kZero>(grad, residual, shape, right, left, stats);
  }
}

void FitLeft(const float* grad, float* residual, LowRankShape shape,
             const float* right, NonFinite nonfinite, float* left,
             EncodeStats* stats, Stream) {
  if (nonfinite == NonFinite::kZero) {
    FitLeftByRank<true>(grad, residual, shape, right, left, stats);
  } else {
    FitLeftByRank<false>(grad, residual, shape, right, left, stats);
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
                           const float* next, float* tile) {
  std::fill_n(tile, length, 0.0f);
  ForGroups(shape.rank, [&](auto group, size_t k) HWY_ATTR {
    UpdateRow<true, group>(left + k, right + k * shape.cols, shape.cols, length,
                           next, tile);
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
      ExpandTile(left, right + j, shape, width, at + width, kAdd ? tile : at);
      if (!kAdd) continue;
      const float one = 1.0f;
      UpdateRow<true, 1>(&one, tile, 0, width, at + width, at);
    }
    left += shape.rank;
  }
}

void FillLowRank(KernelTable& table) {
  table.low_rank.fit_left = FitLeft;
  table.low_rank.fit_right = FitRight;
  table.low_rank.fit = FitBySide<FitLeft, FitRight>;
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
