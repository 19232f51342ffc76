#pragma once

#include "kernels/dense.h"

namespace telegrad::kernels::reference {

// SgdMomentumFn of one element.
inline void SgdStep(float grad, const SgdParameters& params, float& weight,
                    float& momentum) {
  const float g = params.rescale * grad + params.weight_decay * weight;
  momentum = params.momentum_rate * momentum - params.learning_rate * g;
  weight = weight + momentum;
}

}  // namespace telegrad::kernels::reference
