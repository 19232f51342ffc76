#pragma once

#include <cstddef>

#include "kernels/cuda/launch.h"
#include "kernels/dense.h"

namespace telegrad::kernels::cuda {

// SgdMomentumFn of elements [i, i + 4), as Load4 and Store4 take them.
template <bool kVector>
__device__ inline void SgdStep4(const float (&grad)[4], size_t i, size_t n,
                                const SgdParameters& params,
                                float* __restrict__ weight,
                                float* __restrict__ momentum) {
  float w[4];
  float m[4];
  Load4<kVector>(weight, i, n, w);
  Load4<kVector>(momentum, i, n, m);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float g = params.rescale * grad[j] + params.weight_decay * w[j];
    m[j] = params.momentum_rate * m[j] - params.learning_rate * g;
    w[j] = w[j] + m[j];
  }
  Store4<kVector>(m, i, n, momentum);
  Store4<kVector>(w, i, n, weight);
}

}  // namespace telegrad::kernels::cuda
