#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/block_top.h"
#include "kernels/value.h"

// The steps of kernels/block_top.h, for the definition and for CPUs.
namespace telegrad::kernels::reference {

// In the order of what is sent first: larger ones, then lower places.
inline uint64_t TopKey(float v, uint32_t place) {
  return uint64_t{SendableBits(v)} << 12 | (kTopBlock - 1 - place);
}

// take(i), in ascending order, for those of `count` elements of one block that
// have the k largest keys; key_at(i) is TopKey of element i.
template <typename KeyAt, typename Take>
void ForEachTop(size_t count, size_t k, KeyAt key_at, Take take) {
  std::array<uint64_t, kTopBlock> keys;
  for (size_t i = 0; i < count; ++i) keys[i] = key_at(i);
  uint64_t least = 0;
  if (count > k) {
    auto* const kth = keys.data() + k - 1;
    std::nth_element(keys.data(), kth, keys.data() + count, std::greater<>());
    least = *kth;
  }
  for (size_t i = 0; i < count; ++i) {
    if (key_at(i) >= least) take(i);
  }
}

// The k that are sent of a block of `size` values, in ascending order of place.
void ChooseTop(const float* v, size_t size, size_t k, uint16_t* places,
               float* values);

// Writes the payload of what has been chosen (`chosen`: values and places), and
// takes it off the residual.
void SendTop(const TopScratch& chosen, size_t n, size_t keep, float* residual,
             uint8_t* payload, EncodeStats* stats);

}  // namespace telegrad::kernels::reference
