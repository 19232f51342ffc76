#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"
#include "kernels/host_device.h"
#include "kernels/two_bit.h"

// A few elements of many, found, listed in ascending order and taken into the
// residual in one pass: for threshold, top-k, random-k.
namespace telegrad::kernels {

// Words and values that the lists below need room for beyond n: vectors are
// stored whole.
constexpr size_t kSurvivorSlack = 16;

// What a GPU needs to order its tiles; CPUs leave it alone (it may be null).
constexpr size_t kSparseTile = 4096;
TELEGRAD_HOST_DEVICE constexpr size_t SparseScratchBytes(size_t n) {
  return 16 + 8 * ((n + kSparseTile - 1) / kSparseTile);
}

// Common to all: grad, residual [n] f32, n < 2^31. `num_survivors` is set, not
// added to. `stats` is added to as by TwoBitEncodeFn; num_nonzero is the number
// of survivors. The lists have room for n + kSurvivorSlack; what lies behind
// the survivors is undefined. scratch: SparseScratchBytes(n), aligned to 8; its
// contents do not matter. float32 without FMA. Alias: no. Deterministic: yes,
// equal everywhere.

// Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud
// Computing", Interspeech 2015:
//   v = residual[i] + grad[i]
//   v >= t: word i<<1,    residual[i] = v - t      (inclusive)
//   v <= -t: word i<<1|1, residual[i] = v + t      (inclusive)
//   else:   no word,      residual[i] = v
// momentum [n], unless null, becomes 0 where there is a word.
// NonFinite as in TwoBitEncodeFn. threshold > 0, finite. Cost: 12 bytes per
// element, and 4 per survivor.
using ThresholdEncodeFn = void(const float* grad, float* residual,
                               float* momentum, size_t n, float threshold,
                               NonFinite nonfinite, uint32_t* survivors,
                               uint64_t* num_survivors, EncodeStats* stats,
                               void* scratch, Stream stream);

// ThresholdEncodeFn for a gradient of 16-bit floats, as TwoBitEncodeHalfFn
// takes it.
// Cost: 10 bytes per element, and 4 per survivor.
using ThresholdEncodeHalfFn = void(const uint16_t* grad, float* residual,
                                   float* momentum, size_t n, float threshold,
                                   NonFinite nonfinite, uint32_t* survivors,
                                   uint64_t* num_survivors, EncodeStats* stats,
                                   void* scratch, Stream stream);

// Lists index and value where *threshold <= |v| <= the largest float, and
// stores every v: what is sent is set to 0 by the caller.
//   v = residual[i] + grad[i];  residual[i] = v
// kZero: where v is not finite, the element is counted and v = residual[i] + 0.
// threshold: one float >= 0 where the kernels can read it, as it may be made on
// the device; null or infinity lists nothing. Cost: 12 bytes per element, and 8
// per survivor.
using LargeValuesFn = void(const float* grad, float* residual, size_t n,
                           const float* threshold, NonFinite nonfinite,
                           uint32_t* indices, float* values,
                           uint64_t* num_survivors, EncodeStats* stats,
                           void* scratch, Stream stream);

// LargeValuesFn with the momentum correction of Deep Gradient Compression (Lin
// et al., ICLR 2018):
//   u = rate * momentum[i] + *scale * grad[i];  momentum[i] = u
//   v = residual[i] + u;                       residual[i] = v
// kZero: where v is not finite, the element is counted and u = rate *
// momentum[i]; if v is not finite even then, u = 0 and v = residual[i].
// Cost: 20 bytes per element, and 8 per survivor.
// scale: one float where the kernels can read it; null is 1.
struct MomentumCorrection {
  float rate = 0;
  const float* scale = nullptr;
};
using MomentumLargeValuesFn = void(const float* grad,
                                   MomentumCorrection correction,
                                   float* momentum, float* residual, size_t n,
                                   const float* threshold, NonFinite nonfinite,
                                   uint32_t* indices, float* values,
                                   uint64_t* num_survivors, EncodeStats* stats,
                                   void* scratch, Stream stream);

TELEGRAD_HOST_DEVICE inline float ThresholdAt(const float* threshold) {
  return threshold == nullptr ? INFINITY : *threshold;
}
TELEGRAD_HOST_DEVICE inline float ScaleAt(const float* scale) {
  return scale == nullptr ? 1.0f : *scale;
}

struct SparseKernels {
  ThresholdEncodeFn* threshold_encode = nullptr;
  ThresholdEncodeHalfFn* threshold_encode_fp16 = nullptr;
  ThresholdEncodeHalfFn* threshold_encode_bf16 = nullptr;
  LargeValuesFn* large_values = nullptr;
  MomentumLargeValuesFn* momentum_large_values = nullptr;
};

}  // namespace telegrad::kernels
