#pragma once

#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "base/bytes.h"

// Payloads and gradients as kernels want them.
namespace telegrad {

inline const float* AsFloats(ConstBytes bytes) {
  return reinterpret_cast<const float*>(bytes.data);
}
inline float* AsFloats(Bytes bytes) {
  return reinterpret_cast<float*>(bytes.data);
}
inline const uint16_t* AsHalves(ConstBytes bytes) {
  return reinterpret_cast<const uint16_t*>(bytes.data);
}
inline const uint8_t* AsCodes(ConstBytes bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data);
}
inline uint8_t* AsCodes(Bytes bytes) {
  return reinterpret_cast<uint8_t*>(bytes.data);
}

// One pointer per payload, for sums.
using FramePointers = absl::InlinedVector<const uint8_t*, 64>;
inline FramePointers Pointers(std::span<const ConstBytes> payloads) {
  FramePointers pointers;
  for (const ConstBytes& payload : payloads) {
    pointers.push_back(AsCodes(payload));
  }
  return pointers;
}

}  // namespace telegrad
