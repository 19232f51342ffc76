#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"

// MXNet's 2-bit codes: n elements in words of 16, 4*ceil(n/16) bytes. Element i
// is in byte i/4, bits 6-2*(i%4) and up: 11 is +t, 10 is -t, 00 is 0; 01 never
// occurs; unused bits of the last word are 0.
// Source: apache/mxnet src/kvstore/gradient_compression-inl.h `quantize_2bit`.
namespace telegrad::kernels {

constexpr size_t kCodesPerWord = 16;

constexpr size_t TwoBitBytes(size_t n) {
  return 4 * ((n + kCodesPerWord - 1) / kCodesPerWord);
}

enum class NonFinite : uint8_t {
  kZero = 0,       // counted, then taken as a gradient of 0
  kPropagate = 1,  // MXNet: NaN stays in the residual, Inf sends +-t for ever
};

// Encodes grad + residual with error feedback, in float32, without FMA:
//   v = residual[i] + grad[i]
//   v >= t: code 11, residual[i] = v - t      (inclusive)
//   v <= -t: code 10, residual[i] = v + t     (inclusive)
//   else:    code 00, residual[i] = v
// kZero: where v is not finite, the element is counted (index within this
// call) and v = residual[i] + 0 is used instead; kPropagate counts nothing.
// Shapes: grad, residual [n] f32; codes TwoBitBytes(n). threshold > 0, finite.
// `stats` is added to: counts add, the first index is the minimum of what is
// there and what is found. Alias: no. Deterministic: yes, equal everywhere.
// Alignment: none demanded. Cost: 12.25 bytes per element.
using TwoBitEncodeFn = void(const float* grad, float* residual, size_t n,
                            float threshold, NonFinite nonfinite,
                            uint8_t* codes, EncodeStats* stats, Stream stream);

// TwoBitEncodeFn for a gradient of 16-bit floats (kernels/cast.h): fp16 or
// bf16, n uint16 aligned to 2. Each is taken to float32, which is exact, and
// v = residual[i] + float(grad[i]): the bits of casting the gradient first.
// Cost: 10.25 bytes per element.
using TwoBitEncodeHalfFn = void(const uint16_t* grad, float* residual, size_t n,
                                float threshold, NonFinite nonfinite,
                                uint8_t* codes, EncodeStats* stats,
                                Stream stream);

// out[i] = +t, -t or +0. Code 01 decodes to 0.
using TwoBitDecodeFn = void(const uint8_t* codes, size_t n, float threshold,
                            float* out, Stream stream);

// sum[i] = sum[i] + (+t, -t or +0), one float32 addition per element.
using TwoBitDecodeAddFn = void(const uint8_t* codes, size_t n, float threshold,
                               float* sum, Stream stream);

}  // namespace telegrad::kernels
