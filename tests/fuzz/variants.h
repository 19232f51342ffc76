#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/compression/codec_variant.h"

// What the fuzz targets of codecs choose from.
namespace telegrad {

constexpr size_t kMaxFuzzedElems = 2048;
constexpr size_t kFewFuzzedElems = 160;

// Codecs with their options as they are, and with small blocks, large
// densities, other roundings.
inline const std::vector<std::shared_ptr<const Variant>>& FuzzedVariants() {
  static const auto* const made = [] {
    auto* all = new std::vector<std::shared_ptr<const Variant>>(Variants());
    for (const char* text :
         {"fp16:residual=0", "onebit:block=128", "int8:block=64",
          "int4:block=64", "int3:block=64", "int2:block=64", "qsgd:levels=7",
          "terngrad:clip=2", "topk:0.5", "dgc:0.2", "randomk:0.3", "powersgd:1",
          "sparseloco:0.1"}) {
      all->push_back(std::make_shared<Variant>(text));
    }
    return all;
  }();
  return *made;
}

// From two bytes: few elements, which are faster, in seven of eight.
constexpr size_t NumFuzzedElems(uint8_t low, uint8_t high) {
  const size_t number = low | size_t{high / 8u} << 8;
  return 1 + number % (high % 8 == 0 ? kMaxFuzzedElems : kFewFuzzedElems);
}
static_assert(NumFuzzedElems(0xFF, 0x38) == kMaxFuzzedElems);
static_assert(NumFuzzedElems(0xFF, 0x39) <= kFewFuzzedElems);

inline void Require(bool is_true) {
  if (!is_true) std::abort();
}

// Copies, so that a sanitizer sees reads beyond an end.
inline Buffer CopyOf(const void* from, size_t size) {
  Buffer copy(size);
  if (size > 0) std::memcpy(copy.data(), from, size);
  return copy;
}

// One of each variant and size is kept: making costs more than running.
class PreparedCodecs {
 public:
  const PreparedCodec& Get(size_t choice, size_t num_elems) {
    const size_t at = choice % FuzzedVariants().size();
    made_[at].resize(kMaxFuzzedElems + 1);
    std::unique_ptr<PreparedCodec>& codec = made_[at][num_elems];
    if (codec == nullptr) {
      codec = *FuzzedVariants()[at]->Prepare(num_elems, Device{});
    }
    return *codec;
  }

 private:
  std::vector<std::vector<std::unique_ptr<PreparedCodec>>> made_ =
      std::vector<std::vector<std::unique_ptr<PreparedCodec>>>(
          FuzzedVariants().size());
};

}  // namespace telegrad
