#pragma once

#include <cstdint>

namespace telegrad::kernels {

constexpr uint64_t kNoIndex = UINT64_MAX;

// What an encoder saw. On a GPU it lies in memory that the device can write,
// and is valid once the stream has passed the kernel.
struct EncodeStats {
  uint64_t num_nonzero = 0;             // codes other than 0
  uint64_t num_nonfinite = 0;           // elements that were NaN or infinite
  uint64_t first_nonfinite = kNoIndex;  // the smallest such index
};

}  // namespace telegrad::kernels
