#pragma once

#include <cstddef>

#include "base/device.h"
#include "base/stream.h"
#include "kernels/optimizer.h"

// The two halves of a step of adam or adamw whose mean of squares stays as it
// is (1-bit Adam, arXiv 2102.02888): all float32, without FMA, in the order
// that is written here. Shapes: all arrays [n] f32. Alias: no.
namespace telegrad::kernels {

// The mean that a contributor alone would have, in place of its gradient:
//   grad[i] = beta1 * mean[i] + rest1 * (grad[i] + weight_decay * weight[i])
// Cost: 16 bytes per element.
using ToMeanFn = void(const float* mean, const float* weight, size_t n,
                      AdamStep step, float* grad, Stream stream);

// A step by the sum of these:
//   mean[i] = rescale * sum[i]
//   weight[i] = keep * weight[i] -
//               step_size * (mean[i] / (sqrt(square[i]) / root + epsilon))
// Division and square root are rounded once, as IEEE 754 has them.
// Cost: 20 bytes per element.
using StepByMeanFn = void(const float* sum, const float* square, size_t n,
                          AdamStep step, float* weight, float* mean,
                          Stream stream);

struct FrozenAdamKernels {
  ToMeanFn* to_mean = nullptr;
  StepByMeanFn* step_by_mean = nullptr;
};

// The kernels of a device for which there are some (dispatch.h).
const FrozenAdamKernels& FrozenAdamKernelsOf(DeviceKind kind);

}  // namespace telegrad::kernels
