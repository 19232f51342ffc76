#pragma once

#include "compression/codec.h"

namespace telegrad {

// float32 as it is: lossless, 4 bytes per element. Factory for registry.cc.
const Codec& NoneCodec();

}  // namespace telegrad
