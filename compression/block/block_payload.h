#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "kernels/block.h"

// What an encoder of kernels/block.h cannot have written.
namespace telegrad {

// InvalidArgument for codes that do not occur (below -levels or above levels;
// all do where levels is 2^(bits-1)) and for bits behind the end. `codes` has
// CodeBytes(n, bits).
absl::Status CheckCodes(const uint8_t* codes, size_t n, uint32_t bits,
                        uint32_t levels);

// Size, scales and codes of a payload of n elements.
absl::Status CheckBlockPayload(ConstBytes payload, size_t n,
                               const kernels::BlockFormat& format);

}  // namespace telegrad
