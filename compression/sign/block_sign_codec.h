#pragma once

#include "compression/codec.h"

namespace telegrad {

// onebit: the sign of gradient plus residual times the mean magnitude of its
// block, with error feedback. Bytes: 4*ceil(n/block) + 4*ceil(n/32). Source:
// Seide et al. 2014; Tang et al., "1-bit Adam", 2021; kernels/sign.h. Factory
// for registry.cc.
const Codec& BlockSignCodec();

}  // namespace telegrad
