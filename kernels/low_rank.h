#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"
#include "kernels/host_device.h"
#include "kernels/philox.h"
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

  TELEGRAD_HOST_DEVICE size_t rows() const { return (n + cols - 1) / cols; }
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

// A payload, aligned to 4: a header, right, left. One factor is the basis, with
// orthonormal vectors that all workers share; the other is fitted to it.
enum class LowRankSide : uint8_t { kRight = 0, kLeft = 1 };
struct LowRankHeader {
  uint16_t rank;
  LowRankSide side;  // the side of the basis
  uint8_t zero;
};
static_assert(sizeof(LowRankHeader) == sizeof(float), "it counts as one");

TELEGRAD_HOST_DEVICE inline LowRankSide OtherSide(LowRankSide side) {
  return side == LowRankSide::kRight ? LowRankSide::kLeft : LowRankSide::kRight;
}

// A factor of a payload as vectors: element i of vector k is float
// first + k * vector_step + i * element_step of it.
struct LowRankFactor {
  size_t first;
  size_t count;
  size_t size;  // elements of a vector
  size_t vector_step;
  size_t element_step;
};

TELEGRAD_HOST_DEVICE inline LowRankFactor FactorAt(const LowRankShape& shape,
                                                   LowRankSide side) {
  const size_t in_right = shape.rank * shape.cols;
  if (side == LowRankSide::kRight) {
    return {1, in_right, shape.cols, shape.cols, 1};
  }
  return {1 + in_right, shape.rank * shape.rows(), shape.rows(), 1, shape.rank};
}

inline size_t LowRankBytes(const LowRankShape& shape) {
  return 4 * (1 + shape.rank * (shape.cols + shape.rows()));
}

// Fits a payload that has its header and basis: what fit_left does where the
// basis is on the right, else what fit_right does. Elements of the fitted
// factor other than 0 are added to num_nonzero.
using LowRankFitFn = void(const float* grad, float* residual,
                          LowRankShape shape, NonFinite nonfinite,
                          uint8_t* payload, EncodeStats* stats, Stream stream);

// Adds a payload's fitted factor to that of `sum`, which has the same basis.
using LowRankAddFn = void(const uint8_t* payload, LowRankShape shape,
                          uint8_t* sum, Stream stream);

// Makes the vectors of a factor orthonormal: in double, by modified
// Gram-Schmidt, twice for each. From vector v the parts along each vector b
// before it are taken off, v[i] = v[i] - (v . b) * b[i], in order, twice; then
// it is divided by its length. Where no more than kLeastRemainder of the length
// is left, v becomes BasisDraw({kReplacementSeed, k}, j), j going on from one
// attempt to the next, and the same is done. Dot products: lane l (of 8) adds
// products l, l + 8, ... in order, from 0; then the lanes are added in order,
// from 0. Vectors have finite elements, below 2^128 in size, and are no more
// than their elements. vectors: [rank * max(rows, cols)] f64, which the basis
// is left in, vector after vector.
//
// learn: next's header and basis are those that follow `sum`: its fitted factor
// as said. random: payload's basis is on the right, made of BasisDraw(draw,
// k * cols + j). The other factor stays as it is. Alias: no.
// Equal bits everywhere: no FMA.
constexpr size_t kBasisLanes = 8;
constexpr double kLeastRemainder =
    1e-6;  // inputs are float32: this is rounding
constexpr uint64_t kReplacementSeed = 0x506F776572534744;  // "PowerSGD"
using LowRankLearnFn = void(const uint8_t* sum, LowRankShape shape,
                            double* vectors, uint8_t* next, Stream stream);
using LowRankRandomFn = void(DrawKey draw, LowRankShape shape, double* vectors,
                             uint8_t* payload, Stream stream);

// Uniform in [-1, 1): number `index` of base/random.h's Random(key, step).
TELEGRAD_HOST_DEVICE inline float BasisDraw(const DrawKey& draw,
                                            uint64_t index) {
  const PhiloxWords words = PhiloxDraw<10>(draw, index / 4);
  const uint64_t at = index % 4;
  const uint32_t word = at == 0   ? words.word[0]
                        : at == 1 ? words.word[1]
                        : at == 2 ? words.word[2]
                                  : words.word[3];
  return -1.0f + 2.0f * (static_cast<float>(word >> 8) * 0x1p-24f);
}

struct LowRankKernels {
  LowRankFitLeftFn* fit_left = nullptr;
  LowRankFitRightFn* fit_right = nullptr;
  LowRankFitFn* fit = nullptr;
  LowRankAddFn* add_fitted = nullptr;
  LowRankLearnFn* learn = nullptr;
  LowRankRandomFn* random = nullptr;
  LowRankExpandFn* expand = nullptr;
  LowRankExpandFn* expand_add = nullptr;
};

}  // namespace telegrad::kernels
