#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/bytes.h"

// The payload of topk and dgc, few elements of n with their values:
//   u8 format of the indices, u8[3] 0, u32 count,
//   f32[count] values, finite and not 0, the indices (index_list.h).
namespace telegrad {

constexpr size_t MaxValueListBytes(size_t n, size_t count) {
  return 8 + 4 * count + (n + 7) / 8;
}

// Returns the size. `indices` ascend; `out` has MaxValueListBytes.
size_t WriteValueList(std::span<const uint32_t> indices, const float* values,
                      size_t n, Bytes out);

absl::Status ValidateValueList(ConstBytes payload, size_t n, size_t max_count);

// Decode a payload that ValidateValueList has passed: out [n] = payload, and
// sum [n] += payload.
void DecodeValueList(ConstBytes payload, size_t n, float* out);
void AddValueList(ConstBytes payload, size_t n, float* sum);

}  // namespace telegrad
