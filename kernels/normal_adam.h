#pragma once

#include <cstddef>

#include "base/device.h"
#include "base/stream.h"
#include "kernels/optimizer.h"

// The two halves of a step of adam or adamw around a codec of few bits, which
// gets gradients of one size: all float32, without FMA, in the order that is
// written here. Shapes: all arrays [n] f32. Alias: no.
namespace telegrad::kernels {

// Elements that share a mean of square[i].
constexpr size_t kNormalBlock = 256;

// What depends on the step's number; OptimizerState makes it. With the mean of
// square[i] over a block of kNormalBlock:
//   s[i] = sqrt((square[i] + floor * mean) / mean), or 1 where mean < 2^-126
// so that a block's s have a mean square of 1 + floor: what a codec holds back
// keeps its size when all of a block grow or shrink. The mean: element j is
// added to sum j mod 32 in order, then half of the sums to the other half, five
// times, and the last one is divided by the number of elements.
struct NormalStep {
  float floor = 0.02f;
  float mean_rate = 0;  // learning_rate * beta1 / (1 - beta1^(t+2))
  float grad_rate = 0;  // learning_rate * (1 - beta1) / (1 - beta1^(t+2))
};
constexpr float kLeastNormalMean = 0x1p-126f;

//   grad[i] = grad[i] / s[i]
// Cost: 12 bytes per element.
using ToNormalFn = void(const float* square, size_t n, NormalStep normal,
                        float* grad, Stream stream);

// A step by the sum of these, with Nesterov's lead (NAdam without a schedule of
// beta1, Dozat, ICLR workshop 2016):
//   w = keep * weight[i];  g = rescale * (s[i] * sum[i]) + weight_decay * w
//   mean[i] = beta1 * mean[i] + rest1 * g
//   square[i] = beta2 * square[i] + rest2 * (g * g)
//   weight[i] = w - (mean_rate * mean[i] + grad_rate * g) /
//                   (sqrt(square[i]) / root + epsilon)
// with s of the squares before. Cost: 28 bytes per element.
using StepByNormalFn = void(const float* sum, size_t n, AdamStep step,
                            NormalStep normal, float* weight, float* mean,
                            float* square, Stream stream);

struct NormalAdamKernels {
  ToNormalFn* to_normal = nullptr;
  StepByNormalFn* step_by_normal = nullptr;
};

// The kernels of a device for which there are some (dispatch.h).
const NormalAdamKernels& NormalAdamKernelsOf(DeviceKind kind);

}  // namespace telegrad::kernels
