#include "kernels/low_rank.h"

#include <algorithm>
#include <cmath>

#include "kernels/low_rank_payload.h"
#include "kernels/reference.h"

namespace telegrad::kernels::reference {
namespace {

size_t RowLength(const LowRankShape& shape, size_t row) {
  return std::min(shape.cols, shape.n - row * shape.cols);
}

void AddGradient(const float* grad, float* residual, size_t n,
                 NonFinite nonfinite, EncodeStats* stats) {
  for (size_t i = 0; i < n; ++i) {
    float m = residual[i] + grad[i];
    if (nonfinite == NonFinite::kZero && !std::isfinite(m)) {
      ++stats->num_nonfinite;
      stats->first_nonfinite =
          std::min<uint64_t>(stats->first_nonfinite, static_cast<uint64_t>(i));
      m = residual[i] + 0.0f;
    }
    residual[i] = m;
  }
}

float Dot(const float* row, const float* right, size_t length) {
  float lanes[kLowRankLanes] = {};
  for (size_t j = 0; j < length; ++j) {
    lanes[j % kLowRankLanes] += row[j] * right[j];
  }
  for (size_t half = kLowRankLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

void SubtractProduct(const float* left, const float* right,
                     const LowRankShape& shape, float* residual) {
  for (size_t i = 0; i < shape.rows(); ++i) {
    float* row = residual + i * shape.cols;
    for (uint32_t k = 0; k < shape.rank; ++k) {
      const float factor = left[i * shape.rank + k];
      for (size_t j = 0; j < RowLength(shape, i); ++j) {
        row[j] -= factor * right[k * shape.cols + j];
      }
    }
  }
}

void FitLeft(const float* grad, float* residual, LowRankShape shape,
             const float* right, NonFinite nonfinite, float* left,
             EncodeStats* stats, Stream) {
  AddGradient(grad, residual, shape.n, nonfinite, stats);
  for (size_t i = 0; i < shape.rows(); ++i) {
    for (uint32_t k = 0; k < shape.rank; ++k) {
      left[i * shape.rank + k] =
          LimitFactor(Dot(residual + i * shape.cols, right + k * shape.cols,
                          RowLength(shape, i)));
    }
  }
  SubtractProduct(left, right, shape, residual);
}

void FitRight(const float* grad, float* residual, LowRankShape shape,
              const float* left, NonFinite nonfinite, float* right,
              EncodeStats* stats, Stream) {
  AddGradient(grad, residual, shape.n, nonfinite, stats);
  std::fill_n(right, shape.rank * shape.cols, 0.0f);
  for (size_t i = 0; i < shape.rows(); ++i) {
    for (uint32_t k = 0; k < shape.rank; ++k) {
      const float factor = left[i * shape.rank + k];
      for (size_t j = 0; j < RowLength(shape, i); ++j) {
        right[k * shape.cols + j] += factor * residual[i * shape.cols + j];
      }
    }
  }
  for (size_t k = 0; k < shape.rank * shape.cols; ++k) {
    right[k] = LimitFactor(right[k]);
  }
  SubtractProduct(left, right, shape, residual);
}

template <bool kAdd>
void Expand(const float* left, const float* right, LowRankShape shape,
            float* out, Stream) {
  for (size_t i = 0; i < shape.n; ++i) {
    const float* factors = left + i / shape.cols * shape.rank;
    float value = 0;
    for (uint32_t k = 0; k < shape.rank; ++k) {
      value += factors[k] * right[k * shape.cols + i % shape.cols];
    }
    out[i] = kAdd ? out[i] + value : value;
  }
}

void AddFitted(const uint8_t* payload, LowRankShape shape, uint8_t* sum,
               Stream) {
  const LowRankFactor factor = FactorAt(shape, OtherSide(HeaderOf(sum).side));
  const float* from = FactorIn(payload, factor);
  float* to = FactorIn(sum, factor);
  for (size_t i = 0; i < factor.count; ++i) to[i] += from[i];
}

double DotOf(const double* x, const double* y, size_t size) {
  double lanes[kBasisLanes] = {};
  for (size_t i = 0; i < size; ++i) lanes[i % kBasisLanes] += x[i] * y[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// False where next to nothing is left.
bool OrthonormalizeOne(size_t size, uint32_t k, double* vectors) {
  double* vector = vectors + k * size;
  const double before = std::sqrt(DotOf(vector, vector, size));
  for (int pass = 0; pass < 2; ++pass) {
    for (uint32_t other = 0; other < k; ++other) {
      const double* basis = vectors + other * size;
      const double along = DotOf(vector, basis, size);
      for (size_t i = 0; i < size; ++i) vector[i] -= along * basis[i];
    }
  }
  const double after = std::sqrt(DotOf(vector, vector, size));
  if (!(after > kLeastRemainder * before)) return false;
  for (size_t i = 0; i < size; ++i) vector[i] /= after;
  return true;
}

// `vectors` becomes the basis on that side of a payload.
void WriteBasis(LowRankSide side, const LowRankShape& shape, double* vectors,
                uint8_t* payload) {
  const LowRankFactor factor = FactorAt(shape, side);
  for (uint32_t k = 0; k < shape.rank; ++k) {
    uint64_t drawn = 0;
    while (!OrthonormalizeOne(factor.size, k, vectors)) {
      for (size_t i = 0; i < factor.size; ++i) {
        vectors[k * factor.size + i] =
            BasisDraw({kReplacementSeed, k}, drawn++);
      }
    }
  }
  const LowRankHeader header = {static_cast<uint16_t>(shape.rank), side, 0};
  std::memcpy(payload, &header, sizeof(header));
  float* basis = FactorIn(payload, factor);
  for (size_t k = 0; k < shape.rank; ++k) {
    for (size_t i = 0; i < factor.size; ++i) {
      basis[k * factor.vector_step + i * factor.element_step] =
          static_cast<float>(vectors[k * factor.size + i]);
    }
  }
}

void Learn(const uint8_t* sum, LowRankShape shape, double* vectors,
           uint8_t* next, Stream) {
  const LowRankSide side = OtherSide(HeaderOf(sum).side);
  const LowRankFactor factor = FactorAt(shape, side);
  const float* fitted = FactorIn(sum, factor);
  for (size_t k = 0; k < shape.rank; ++k) {
    for (size_t i = 0; i < factor.size; ++i) {
      vectors[k * factor.size + i] =
          fitted[k * factor.vector_step + i * factor.element_step];
    }
  }
  WriteBasis(side, shape, vectors, next);
}

void RandomBasis(DrawKey draw, LowRankShape shape, double* vectors,
                 uint8_t* payload, Stream) {
  for (size_t i = 0; i < shape.rank * shape.cols; ++i) {
    vectors[i] = BasisDraw(draw, i);
  }
  WriteBasis(LowRankSide::kRight, shape, vectors, payload);
}

}  // namespace

LowRankKernels LowRank() {
  LowRankKernels kernels;
  kernels.fit_left = FitLeft;
  kernels.fit_right = FitRight;
  kernels.fit = FitBySide<FitLeft, FitRight>;
  kernels.add_fitted = AddFitted;
  kernels.learn = Learn;
  kernels.random = RandomBasis;
  kernels.expand = Expand<false>;
  kernels.expand_add = Expand<true>;
  return kernels;
}

}  // namespace telegrad::kernels::reference
