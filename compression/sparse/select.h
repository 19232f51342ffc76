#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/select.h"

// The largest of many by magnitude: exact, and by the same rules everywhere.
// 0, NaN and infinities are never among them; of equal magnitudes the lower
// index comes first.
namespace telegrad {

using kernels::kSampleRun;
using kernels::MaxSample;
using kernels::SampleAt;

inline uint32_t MagnitudeBits(float value) {
  return kernels::SendableBits(value);
}

// The magnitude, never 0, that about `wanted` of n elements have at least, by a
// sample of them. `generous`: no fewer than `wanted`, most probably.
float ThresholdOf(const float* sample, size_t size, size_t n, size_t wanted,
                  bool generous);

// About as many elements of value(0) to value(n - 1) as `wanted` have at least
// this magnitude: from a sample of all, or a 128th and at least 4096. value(i)
// reads element i of `arrays`. `sample` has room for MaxSample(n).
template <typename Value>
float SampledThreshold(size_t n, size_t wanted, bool generous, Value value,
                       std::initializer_list<const float*> arrays,
                       float* sample) {
  constexpr size_t kAhead = 8;  // groups: no prefetcher knows where they are
  const size_t step = kernels::SampleStep(n);
  size_t size = 0;
  for (size_t group = 0; group * step * kSampleRun < n; ++group) {
    const size_t next = std::min(n, SampleAt(group + kAhead, step));
    for (const float* array : arrays) __builtin_prefetch(array + next);
    const size_t from = SampleAt(group, step);
    const size_t to = std::min(n, from + kSampleRun);
    for (size_t i = from; i < to; ++i) sample[size++] = value(i);
  }
  return ThresholdOf(sample, size, n, wanted, generous);
}

// Leaves, of `count` elements of `from` in ascending order of index, the k
// largest, and asks memory for where they are in `from`: they will be cleared.
size_t KeepLargest(size_t k, size_t count, uint32_t* indices, float* values,
                   const float* from);

// Sets the elements of an array that are listed to 0.
void ClearListed(const uint32_t* indices, size_t count, float* array);

// Lists the k largest of `from` [n], in ascending order of index; the lists
// have room for n. Returns how many there are: fewer where fewer are not 0.
size_t FindLargest(const float* from, size_t n, size_t k, uint32_t* indices,
                   float* values);

}  // namespace telegrad
