#pragma once

#include "compression/codec.h"

namespace telegrad {

// MXNet's 1-bit rule with error feedback, bit for bit: +1 above the threshold,
// else -1. Codes are summable. Bytes: 4*ceil(n/32) + 4. Source: kernels/sign.h.
// Factory for registry.cc.
const Codec& OneBitCodec();

}  // namespace telegrad
