#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"
#include "kernels/host_device.h"

namespace telegrad::kernels {

// sum[i] = sum[i] + x[i], float32. Alias: no.
using AddF32Fn = void(const float* x, size_t n, float* sum, Stream stream);

// x[i] = factor * x[i], float32.
using ScaleF32Fn = void(float factor, size_t n, float* x, Stream stream);

// Counts NaN and infinities in x; adds to `stats` like the encoders
// (num_nonzero stays as it is).
using CountNonFiniteFn = void(const float* x, size_t n, EncodeStats* stats,
                              Stream stream);

// to [size] bytes = from. The same memory, which is left as it is, or no
// overlap.
using CopyFn = void(const void* from, size_t size, void* to, Stream stream);

// to [size] bytes = value [size], at most kMaxPutBytes. For a GPU `value` is in
// host memory, and is not looked at after the call.
constexpr size_t kMaxPutBytes = 32;
using PutFn = void(const void* value, size_t size, void* to, Stream stream);

// Plain SGD with momentum and weight decay, as MXNet's `sgd_mom_update`
// (src/operator/optimizer_op-inl.h), float32, without FMA, in this order:
//   g = rescale * grad[i] + weight_decay * weight[i]
//   momentum[i] = momentum_rate * momentum[i] - learning_rate * g
//   weight[i] = weight[i] + momentum[i]
// Shapes: grad, weight, momentum [n] f32. Alias: no.
struct SgdParameters {
  float learning_rate = 0.01f;
  float momentum_rate = 0.0f;
  float weight_decay = 0.0f;
  float rescale = 1.0f;
};
using SgdMomentumFn = void(const float* grad, size_t n, SgdParameters params,
                           float* weight, float* momentum, Stream stream);

// Mean of the squares of grad + residual over at most kMaxPowerSamples
// elements, the same bits on every device. With n <= kMaxPowerSamples all
// elements are taken, else PowerSample(j, n) for j < kMaxPowerSamples:
// runs of neighbours, as memory gives them together. residual may be null
// (zeros). v = residual + grad in float32; a v that is not finite counts as 0.
// Summed in double: lane l (of 64) adds samples l, l+64, ... in order; lanes
// are then added pairwise, l with l + 32, then l with l + 16, down to 1.
// Result: sum / samples; 0 for n = 0.
constexpr size_t kMaxPowerSamples = 4096;
constexpr size_t kPowerRun = 8;
constexpr size_t kPowerLanes = 64;
using SampledPowerFn = void(const float* grad, const float* residual, size_t n,
                            double* mean_square, Stream stream);

// Run r begins at the floor(r * floor(n / run) / runs)-th run of the array; n
// beyond kMaxPowerSamples.
TELEGRAD_HOST_DEVICE constexpr size_t PowerSample(size_t j, size_t n) {
  constexpr size_t kRuns = kMaxPowerSamples / kPowerRun;
  const size_t all = n / kPowerRun;
  const size_t r = j / kPowerRun;
  const size_t at = all / kRuns * r + all % kRuns * r / kRuns;  // no overflow
  return kPowerRun * at + j % kPowerRun;
}

}  // namespace telegrad::kernels
