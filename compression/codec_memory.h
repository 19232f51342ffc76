#pragma once

#include "absl/status/status.h"
#include "base/bytes.h"
#include "compression/codec.h"

namespace telegrad {

// OK when `memory`, aligned to 4, is what CodecState::memory of an encoder on
// the host can hold after a step, where `codec` keeps any: for bytes from a
// file, before they become one's. InvalidArgument says what is wrong.
absl::Status CheckCodecMemory(const PreparedCodec& codec, ConstBytes memory);

// Whether that is [n] f32, of each element its own, as the residual is: what
// several chunks or workers have can be cut and added.
bool IsMemoryByElement(const CodecTraits& traits);

}  // namespace telegrad
