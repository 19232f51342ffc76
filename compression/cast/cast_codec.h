#pragma once

#include "compression/codec.h"

namespace telegrad {

// 16-bit floats, to the nearest, with error feedback unless residual=0:
// v = r + g, code = cast(v), r = v - float(code). Bytes: 2n. Error: half an ulp
// of the format, carried to the next step. Source: kernels/cast.h. Factories
// for registry.cc.
const Codec& Fp16Codec();
const Codec& Bf16Codec();

}  // namespace telegrad
