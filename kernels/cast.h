#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"
#include "kernels/two_bit.h"

// Casts between float32 and 16-bit floats, with and without error feedback.
// Codes are little-endian uint16, 2n bytes, at any address.
//   fp16: IEEE 754 binary16, subnormals kept.
//   bf16: the upper half of a float32.
// To the nearest, ties to the even code. Finite values beyond the format's
// largest (65504; 3.3895314e38) become +-that. Infinities stay. Every NaN
// becomes the positive quiet one without a payload (7E00, 7FC0): whether an
// operation makes a NaN with or without a sign depends on the processor.
namespace telegrad::kernels {

constexpr size_t CastBytes(size_t n) { return 2 * n; }

// v = residual[i] + grad[i]; code = cast(v); residual[i] = v - float(code), in
// float32. `residual` null: v = grad[i], and the error is dropped.
// kZero: where v is not finite, the element is counted (index within this
// call), and v = residual[i] + 0 instead, or 0 where that is not finite
// either, so no code is infinite or NaN. kPropagate counts nothing.
// Shapes: grad, residual [n] f32; codes CastBytes(n). num_nonzero counts codes
// other than +-0. `stats` is added to, as in two_bit.h. Alias: no.
// Deterministic: yes, equal everywhere. Cost: 14 bytes per element, 6 without
// a residual.
using CastEncodeFn = void(const float* grad, float* residual, size_t n,
                          NonFinite nonfinite, uint8_t* codes,
                          EncodeStats* stats, Stream stream);

// out[i] = float(code), which is exact. Decode-add: out[i] += float(code).
using CastDecodeFn = void(const uint8_t* codes, size_t n, float* out,
                          Stream stream);

struct CastFormatKernels {
  CastEncodeFn* encode = nullptr;
  CastDecodeFn* decode = nullptr;
  CastDecodeFn* decode_add = nullptr;
};

struct CastKernels {
  CastFormatKernels fp16;
  CastFormatKernels bf16;
};

}  // namespace telegrad::kernels
