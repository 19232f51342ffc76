// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_LOW_RANK_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_LOW_RANK_ROWS_INL_H_
#undef TELEGRAD_KERNELS_CPU_LOW_RANK_ROWS_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_LOW_RANK_ROWS_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_rank.h"

// What happens to one row of a matrix; kernels/low_rank.h has the names.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

constexpr size_t kVectors = kLowRankLanes / kLanes;

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

// m = residual + grad for a block of kLowRankLanes elements, also stored.
template <bool kZero>
HWY_INLINE void AddBlock(const float* HWY_RESTRICT grad,
                         float* HWY_RESTRICT residual, size_t at,
                         EncodeStats* stats, VF (&m)[kVectors]) {
  const DF df;
  const DI di;
  const VI magnitude = hn::Set(di, 0x7FFFFFFF);
  VI most = hn::Zero(di);
  for (size_t v = 0; v < kVectors; ++v) {
    m[v] = hn::Add(hn::LoadU(df, residual + at + v * kLanes),
                   hn::LoadU(df, grad + at + v * kLanes));
    most = hn::Max(most, hn::And(hn::BitCast(di, m[v]), magnitude));
  }
  if (kZero &&
      HWY_UNLIKELY(!hn::AllTrue(di, hn::Lt(most, hn::Set(di, 0x7F800000))))) {
    AddSlowly(grad, residual, at, at + kLowRankLanes, stats);
    for (size_t v = 0; v < kVectors; ++v) {
      m[v] = hn::LoadU(df, residual + at + v * kLanes);
    }
    return;
  }
  for (size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(m[v], df, residual + at + v * kLanes);
  }
}

// Elements [from, to).
template <bool kZero>
HWY_INLINE void AddRow(const float* HWY_RESTRICT grad,
                       float* HWY_RESTRICT residual, size_t from, size_t to,
                       EncodeStats* stats) {
  size_t i = from;
  for (; i + kLowRankLanes <= to; i += kLowRankLanes) {
    VF m[kVectors];
    AddBlock<kZero>(grad, residual, i, stats, m);
  }
  if (kZero) return AddSlowly(grad, residual, i, to, stats);
  for (; i < to; ++i) residual[i] += grad[i];
}

template <size_t kGroup>
struct DotSums {
  VF lanes[kGroup][kVectors];

  HWY_INLINE DotSums() {
    for (auto& sum : lanes) {
      for (VF& vector : sum) vector = hn::Zero(DF());
    }
  }
  // `right` at the block's first column.
  HWY_INLINE void AddProducts(const VF (&m)[kVectors],
                              const float* HWY_RESTRICT right, size_t cols) {
    for (size_t v = 0; v < kVectors; ++v) {
      for (size_t k = 0; k < kGroup; ++k) {
        const VF basis = hn::LoadU(DF(), right + k * cols + v * kLanes);
        lanes[k][v] = hn::Add(lanes[k][v], hn::Mul(m[v], basis));
      }
    }
  }
  // The last `length` elements of a row, less than a block.
  HWY_INLINE void Finish(const float* row, size_t length, const float* right,
                         size_t cols, float* left) const {
    for (size_t k = 0; k < kGroup; ++k) {
      alignas(64) float sums[kLowRankLanes];
      for (size_t v = 0; v < kVectors; ++v) {
        hn::Store(lanes[k][v], DF(), sums + v * kLanes);
      }
      for (size_t l = 0; l < length; ++l) {
        sums[l] += row[l] * right[k * cols + l];
      }
      for (size_t half = kLowRankLanes / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; ++l) sums[l] += sums[l + half];
      }
      left[k] = LimitFactor(sums[0]);
    }
  }
};

template <size_t kGroup>
HWY_INLINE void DotRow(const float* HWY_RESTRICT row, size_t length,
                       const float* HWY_RESTRICT right, size_t cols,
                       float* HWY_RESTRICT left) {
  DotSums<kGroup> sums;
  size_t j = 0;
  for (; j + kLowRankLanes <= length; j += kLowRankLanes) {
    VF m[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      m[v] = hn::LoadU(DF(), row + j + v * kLanes);
    }
    sums.AddProducts(m, right + j, cols);
  }
  sums.Finish(row + j, length - j, right + j, cols, left);
}

// row -= sum of left[k] right[k], or += for kAdd; one rank after the other.
// next: what memory is to bring meanwhile.
template <bool kAdd, size_t kGroup>
HWY_INLINE void UpdateRow(const float* HWY_RESTRICT left,
                          const float* HWY_RESTRICT right, size_t cols,
                          size_t length, const float* next,
                          float* HWY_RESTRICT row) {
  const DF df;
  VF factors[kGroup];
  for (size_t k = 0; k < kGroup; ++k) factors[k] = hn::Set(df, left[k]);
  size_t j = 0;
  for (; j + kLanes <= length; j += kLanes) {
    if (j % kLowRankLanes == 0) {
      kAdd ? PrefetchForWrite(next + j) : __builtin_prefetch(next + j, 0);
    }
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
                              const float* next, float* HWY_RESTRICT right) {
  const DF df;
  VF factors[kGroup];
  for (size_t k = 0; k < kGroup; ++k) factors[k] = hn::Set(df, left[k]);
  size_t j = 0;
  for (; j + kLanes <= length; j += kLanes) {
    if (j % kLowRankLanes == 0) {
      __builtin_prefetch(next + j, 0);
      PrefetchForWrite(row + cols + j);
    }
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

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
