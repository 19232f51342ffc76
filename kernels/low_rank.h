#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/encode_stats.h"
#include "kernels/stream.h"
#include "kernels/two_bit.h"

// Low-rank approximation of a matrix with error feedback: the steps of PowerSGD
// that touch every element (Vogels et al., NeurIPS 2019; one side per step as
// in ACP-SGD, Zhang et al., ICDCS 2023).
namespace telegrad::kernels {

// n elements as a matrix [rows x cols], row by row; elements behind n-1 are 0
// and do not exist in memory. cols is a multiple of kLowRankLanes.
struct LowRankShape {
  size_t n = 0;
  size_t cols = 0;
  uint32_t rank = 0;

  size_t rows() const { return (n + cols - 1) / cols; }
};

constexpr size_t kLowRankLanes = 16;
// Factors are cut off here: 32767 of them, times a basis, times rank 64, are
// finite then. NaN is taken as 0.
constexpr float kMaxFactor = 0x1p104f;

inline float LimitFactor(float value) {
  if (value > kMaxFactor) return kMaxFactor;
  if (value < -kMaxFactor) return -kMaxFactor;
  return value == value ? value : 0.0f;
}

// In all of them: grad, residual, out, sum [n] f32; left [rows x rank] f32;
// right [rank x cols] f32; no aliases; float32 without FMA. The encoders first
// set m = residual + grad; with NonFinite::kZero an m that is NaN or infinite
// is counted into `stats`, and is residual + 0 then. Last they set
//   residual = ((m - left[i][0] right[0][j]) - left[i][1] right[1][j]) - ...
// and num_nonzero stays as it is.

// right is given; left[i][k] = LimitFactor(sum over j of m[i][j] right[k][j]).
// Lane l (of 16) adds columns l, l + 16, ... in order; lanes are then added
// pairwise, l with l + 8, then with l + 4, down to 1.
using LowRankFitLeftFn = void(const float* grad, float* residual,
                              LowRankShape shape, const float* right,
                              NonFinite nonfinite, float* left,
                              EncodeStats* stats, Stream stream);

// left is given; right[k][j] = LimitFactor(sum over i of left[i][k] m[i][j]),
// rows in order, from 0.
using LowRankFitRightFn = void(const float* grad, float* residual,
                               LowRankShape shape, const float* left,
                               NonFinite nonfinite, float* right,
                               EncodeStats* stats, Stream stream);

// out = p, sum = sum + p, where p[i][j] = (0 + left[i][0] right[0][j]) +
// left[i][1] right[1][j] + ...
using LowRankExpandFn = void(const float* left, const float* right,
                             LowRankShape shape, float* out, Stream stream);

struct LowRankKernels {
  LowRankFitLeftFn* fit_left = nullptr;
  LowRankFitRightFn* fit_right = nullptr;
  LowRankExpandFn* expand = nullptr;
  LowRankExpandFn* expand_add = nullptr;
};

}  // namespace telegrad::kernels
