#pragma once

#include <cstring>

#include "kernels/low_rank.h"

// Payloads of kernels/low_rank.h in memory of the host.
namespace telegrad::kernels {

inline LowRankHeader HeaderOf(const uint8_t* payload) {
  LowRankHeader header;
  std::memcpy(&header, payload, sizeof(header));
  return header;
}
inline float* FactorIn(uint8_t* payload, const LowRankFactor& factor) {
  return reinterpret_cast<float*>(payload) + factor.first;
}
inline const float* FactorIn(const uint8_t* payload,
                             const LowRankFactor& factor) {
  return reinterpret_cast<const float*>(payload) + factor.first;
}

// A LowRankFitFn, of the two that it chooses from.
template <LowRankFitLeftFn* kFitLeft, LowRankFitRightFn* kFitRight>
void FitBySide(const float* grad, float* residual, LowRankShape shape,
               NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
               Stream stream) {
  float* right = FactorIn(payload, FactorAt(shape, LowRankSide::kRight));
  float* left = FactorIn(payload, FactorAt(shape, LowRankSide::kLeft));
  const LowRankSide side = HeaderOf(payload).side;
  if (side == LowRankSide::kRight) {
    kFitLeft(grad, residual, shape, right, nonfinite, left, stats, stream);
  } else {
    kFitRight(grad, residual, shape, left, nonfinite, right, stats, stream);
  }
  const LowRankFactor factor = FactorAt(shape, OtherSide(side));
  const float* fitted = FactorIn(payload, factor);
  for (size_t i = 0; i < factor.count; ++i) {
    if (fitted[i] != 0) ++stats->num_nonzero;
  }
}

}  // namespace telegrad::kernels
