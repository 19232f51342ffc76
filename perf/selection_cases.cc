// Survivors of thresholds, the largest, and low-rank factors.
#include "kernels/dispatch.h"
#include "perf/family_cases.h"

namespace telegrad::perf {
namespace {

using kernels::CpuKernels;
using kernels::EncodeStats;
using kernels::NonFinite;

uint32_t* Indices(const Share& s) {
  return reinterpret_cast<uint32_t*>(s.payload());
}
// Room for n + kSurvivorSlack, as the indices have: shares are larger.
float* Values(const Share& s) { return s.out(); }

// What is sent leaves the residual, as the caller does it.
void ClearSent(const Share& s, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) s.residual()[Indices(s)[i]] = 0;
}

// The share of survivors is 1 %.
void AppendThreshold(std::vector<KernelCase>& cases) {
  static const kernels::SparseKernels& sparse = CpuKernels().sparse;
  cases.push_back(FamilyCase("threshold", "sparse/threshold_encode", 12.04,
                             Traffic::kAdd, [](const Share& s) {
                               EncodeStats stats;
                               uint64_t count = 0;
                               sparse.threshold_encode(
                                   s.grad(), s.residual(), nullptr, s.n,
                                   s.data.threshold, NonFinite::kZero,
                                   Indices(s), &count, &stats, s.scratch(), {});
                             }));
  // The share's gradient, cast to fp16.
  const auto halves = [](const Share& s) {
    return reinterpret_cast<uint16_t*>(s.out());
  };
  cases.push_back(FamilyCase(
      "threshold", "sparse/threshold_encode_fp16", 10.04, Traffic::kAdd,
      [halves](const Share& s) {
        EncodeStats stats;
        uint64_t count = 0;
        sparse.threshold_encode_fp16(
            halves(s), s.residual(), nullptr, s.n, s.data.threshold,
            NonFinite::kZero, Indices(s), &count, &stats, s.scratch(), {});
      },
      [halves](const Share& s) {
        EncodeStats stats;
        CpuKernels().cast.fp16.encode(s.grad(), nullptr, s.n, NonFinite::kZero,
                                      reinterpret_cast<uint8_t*>(halves(s)),
                                      &stats, {});
      }));
}

void AppendLargeValues(std::vector<KernelCase>& cases) {
  static const kernels::SparseKernels& sparse = CpuKernels().sparse;
  cases.push_back(FamilyCase(
      "topk", "sparse/large_values", 12.08, Traffic::kAdd, [](const Share& s) {
        EncodeStats stats;
        uint64_t count = 0;
        sparse.large_values(s.grad(), s.residual(), s.n, &s.data.threshold,
                            NonFinite::kZero, Indices(s), Values(s), &count,
                            &stats, s.scratch(), {});
        ClearSent(s, count);
      }));
  // The momentum stays at the gradient.
  cases.push_back(
      FamilyCase("dgc", "sparse/momentum_large_values", 20.08, Traffic::kAdd,
                 [](const Share& s) {
                   EncodeStats stats;
                   uint64_t count = 0;
                   const float scale = 0.1f;
                   sparse.momentum_large_values(
                       s.grad(), {.rate = 0.9f, .scale = &scale}, s.momentum(),
                       s.residual(), s.n, &s.data.threshold, NonFinite::kZero,
                       Indices(s), Values(s), &count, &stats, s.scratch(), {});
                   ClearSent(s, count);
                 }));
}

// 64 of each 4096.
void AppendBlockTop(std::vector<KernelCase>& cases) {
  static const kernels::BlockTopKernels& top = CpuKernels().block_top;
  constexpr kernels::TopRule kRule;
  const ShareBody encode = [](const Share& s) {
    EncodeStats stats;
    top.encode(s.grad(), s.residual(), s.n, kRule, NonFinite::kZero,
               s.payload(), &stats, s.scratch(), {});
  };
  cases.push_back(FamilyCase("sparseloco", "block_top/encode", 12.03,
                             Traffic::kAdd, encode));
  cases.push_back(FamilyCase(
      "sparseloco", "block_top/decode", 4.03, Traffic::kWrite,
      [](const Share& s) {
        top.decode(s.payload(), s.n, kRule.keep, s.out(), {});
      },
      encode));
}

void AppendLowRank(std::vector<KernelCase>& cases) {
  static const kernels::LowRankKernels& low_rank = CpuKernels().low_rank;
  constexpr size_t kColumns = 1024;
  constexpr uint32_t kRank = 2;
  const auto shape = [](const Share& s) {
    return kernels::LowRankShape{.n = s.n, .cols = kColumns, .rank = kRank};
  };
  // Factors: left at a share's payload, right in its scratch.
  const auto left = [](const Share& s) {
    return reinterpret_cast<float*>(s.payload());
  };
  const auto right = [](const Share& s) {
    return static_cast<float*>(s.scratch());
  };
  cases.push_back(FamilyCase(
      "powersgd", "low_rank/fit_left", 12, Traffic::kAdd, [=](const Share& s) {
        EncodeStats stats;
        low_rank.fit_left(s.grad(), s.residual(), shape(s), right(s),
                          NonFinite::kZero, left(s), &stats, {});
      }));
  cases.push_back(FamilyCase(
      "powersgd", "low_rank/fit_right", 12, Traffic::kAdd, [=](const Share& s) {
        EncodeStats stats;
        low_rank.fit_right(s.grad(), s.residual(), shape(s), left(s),
                           NonFinite::kZero, right(s), &stats, {});
      }));
  cases.push_back(FamilyCase(
      "powersgd", "low_rank/expand", 4, Traffic::kWrite, [=](const Share& s) {
        low_rank.expand(left(s), right(s), shape(s), s.out(), {});
      }));
  cases.push_back(FamilyCase("powersgd", "low_rank/expand_add", 8,
                             Traffic::kUpdate, [=](const Share& s) {
                               low_rank.expand_add(left(s), right(s), shape(s),
                                                   s.out(), {});
                             }));
}

}  // namespace

void AppendSelectionCases(std::vector<KernelCase>& cases) {
  AppendThreshold(cases);
  AppendLargeValues(cases);
  AppendBlockTop(cases);
  AppendLowRank(cases);
}

}  // namespace telegrad::perf
