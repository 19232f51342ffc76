#pragma once

#include <cstddef>

#include "base/stream.h"
#include "kernels/dense.h"

// Steps of optimizers, all float32, without FMA, in the order that is written
// here: the same bits on every device. Shapes: all arrays [n] f32. Alias: no.
// SGD with plain momentum is SgdMomentumFn (dense.h).
namespace telegrad::kernels {

// Nesterov's momentum, as torch::optim::SGD with nesterov (and MXNet's
// `nag_mom_update`); here the momentum holds the learning rate:
//   g = rescale * grad[i] + weight_decay * weight[i];  d = learning_rate * g
//   momentum[i] = momentum_rate * momentum[i] - d
//   weight[i] = weight[i] + (momentum_rate * momentum[i] - d)
// Cost: 20 bytes per element.
using NesterovFn = SgdMomentumFn;

// One step of torch::optim::Adam (keep 1) or AdamW (weight_decay 0). What
// depends on the step's number is in `step`; MakeAdamStep gives it.
//   w = keep * weight[i];  g = rescale * grad[i] + weight_decay * w
//   mean[i] = beta1 * mean[i] + rest1 * g
//   square[i] = beta2 * square[i] + rest2 * (g * g)
//   weight[i] = w - step_size * (mean[i] / (sqrt(square[i]) / root + epsilon))
// Division and square root are rounded once, as IEEE 754 has them.
// Cost: 28 bytes per element. Source: Kingma and Ba, ICLR 2015, algorithm 1;
// Loshchilov and Hutter, ICLR 2019, algorithm 2.
struct AdamStep {
  float rescale = 1;
  float weight_decay = 0;  // added to the gradient: Adam's
  float keep = 1;          // 1 - learning_rate * weight_decay: AdamW's
  float beta1 = 0.9f;
  float rest1 = 0.1f;  // 1 - beta1
  float beta2 = 0.999f;
  float rest2 = 0.001f;
  float step_size = 0.001f;  // learning_rate / (1 - beta1^t)
  float root = 1;            // sqrt(1 - beta2^t)
  float epsilon = 1e-8f;
};
using AdamFn = void(const float* grad, size_t n, AdamStep step, float* weight,
                    float* mean, float* square, Stream stream);

// One step of torch::optim::Adagrad (keep and rest 1) or RMSprop (not centered,
// without momentum):
//   g = rescale * grad[i] + weight_decay * weight[i]
//   square[i] = keep * square[i] + rest * (g * g)
//   weight[i] = weight[i] - learning_rate * (g / (sqrt(square[i]) + epsilon))
// Cost: 20 bytes per element. Source: Duchi, Hazan and Singer, JMLR 2011,
// section 1.3, diagonal; Tieleman and Hinton, Coursera 2012, lecture 6.5.
struct SquareStep {
  float rescale = 1;
  float weight_decay = 0;
  float learning_rate = 0.01f;
  float keep = 1;
  float rest = 1;  // 1 - keep: RMSprop's
  float epsilon = 1e-8f;
};
using SquareFn = void(const float* grad, size_t n, SquareStep step,
                      float* weight, float* square, Stream stream);

// What a worker pushes that keeps the momentum itself, in front of a codec:
//   m = rate * momentum[i] + grad[i]
//   out[i] = grad[i] + rate * (leads ? m : momentum[i])
//   momentum[i] = m, or rate * momentum[i] where out[i] is not finite
// Pushes with `leads`, stepped without momentum, are Nesterov's; those without
// are m, plain momentum. `out` may be `grad`. Cost: 16 bytes per element.
// Source: dist-EF-SGDM, Zheng, Huang and Kwok, NeurIPS 2019 (arXiv 1905.10936),
// algorithm 2.
using PushMomentumFn = void(const float* grad, size_t n, float rate, bool leads,
                            float* momentum, float* out, Stream stream);

struct OptimizerKernels {
  NesterovFn* nesterov = nullptr;
  AdamFn* adam = nullptr;
  SquareFn* square = nullptr;
  PushMomentumFn* push_momentum = nullptr;
};

}  // namespace telegrad::kernels
