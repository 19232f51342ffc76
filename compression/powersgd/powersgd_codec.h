#pragma once

#include "compression/codec.h"

namespace telegrad {

// Low-rank approximation with error feedback and a warm start, one push a step.
// The chunk is a matrix [rows x cols], cols = ceil(sqrt(n)) rounded up to 16,
// padded with zeros; r = min(rank, rows). With M = residual + gradient, and a
// basis that all workers share, one of
//   Q [cols x r] orthonormal:  P = M Q,    decoded P Q^T
//   P [rows x r] orthonormal:  Q = M^T P,  decoded P Q^T
// and residual = M - P Q^T. For one basis the codes are linear in M: factors of
// several encoders are added in the given order, in float32. The next step's
// basis is the sum's factor, orthonormalised (PreparedCodec::Learn); where none
// was learned, it is random, from (stream, step).
//
// Payload: rank u16, side u8 (0: Q is the basis, 1: P), 0 u8, Q^T [r x cols]
// f32, P [rows x r] f32. Bytes: 4 + 4 r (rows + cols). Packed sums: the same
// with the sum of the factors. |basis| <= kMaxBasis; factors are cut off at
// kernels::kMaxFactor.
//
// Error: that of M's projection on r directions, kept in the residual.
// Source: Vogels et al., "PowerSGD", NeurIPS 2019, with the alternating sides
// of Zhang et al., "Evaluation and Optimization of Gradient Compression for
// Distributed Deep Learning" (ACP-SGD), ICDCS 2023.
const Codec& PowerSgdCodec();

// Largest element of a basis: 1, and room for rounding.
constexpr float kMaxBasis = 1.0001f;

}  // namespace telegrad
