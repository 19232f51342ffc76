#pragma once

#include "compression/codec.h"

namespace telegrad {

// MXNet's 2-bit rule with error feedback, bit for bit; codes are summable.
// Bytes: 4*ceil(n/16). Source: kernels/two_bit.h. Factory for registry.cc.
const Codec& TwoBitCodec();

}  // namespace telegrad
