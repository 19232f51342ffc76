#include "compression/codec_memory.h"

#include "compression/shape_checks.h"

namespace telegrad {

absl::Status CheckCodecMemory(const PreparedCodec& codec, ConstBytes memory) {
  switch (codec.traits().id) {
    case CodecId::kDgc:  // momentum
      return CheckSize("memory", memory.size, 4 * codec.num_elems());
    case CodecId::kPowerSgd:  // a payload's header and basis
      return codec.Validate(memory);
    default:
      return CheckSize("memory", memory.size, 0);
  }
}

bool IsMemoryByElement(const CodecTraits& traits) {
  return traits.id == CodecId::kDgc;
}

}  // namespace telegrad
