#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

// The largest of many by magnitude: exact, and by the same rules everywhere.
// 0, NaN and infinities are never among them; of equal magnitudes the lower
// index comes first.
namespace telegrad {

// A float's bits without the sign: in the order of magnitudes. What cannot be
// sent counts as 0.
inline uint32_t MagnitudeBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7FFFFFFF;
  return bits < 0x7F800000 ? bits : 0;
}

// The k-th largest of magnitude(0) to magnitude(n - 1), 1 <= k <= n, 31 bits
// each: by radix, 12 bits at a time.
template <typename Magnitude>
uint32_t KthLargest(size_t n, size_t k, Magnitude magnitude) {
  constexpr int kDigitBits = 12;
  uint32_t known_bits = 0;
  uint32_t known = 0;
  for (const int shift : {19, 7, 0}) {
    constexpr uint32_t kDigit = (1u << kDigitBits) - 1;
    std::array<uint32_t, kDigit + 1> counts{};
    for (size_t i = 0; i < n; ++i) {
      const uint32_t bits = magnitude(i);
      if ((bits & known_bits) == known) ++counts[bits >> shift & kDigit];
    }
    uint32_t digit = kDigit;
    for (; counts[digit] < k; --digit) k -= counts[digit];
    known_bits |= kDigit << shift;
    // The last digit overlaps the one before, where all agree by now.
    known |= digit << shift;
  }
  return known;
}

// Elements are sampled in runs of a cache line.
constexpr size_t kSampleRun = 16;
constexpr size_t MaxSample(size_t n) { return n / 32 + 16384; }

// About as many elements of value(0) to value(n - 1) as `wanted` have at least
// this magnitude, which is never 0: from a sample of all, or a 64th and at
// least 4096. `generous`: no fewer than `wanted`, most probably. `sample` has
// room for MaxSample(n).
template <typename Value>
float SampledThreshold(size_t n, size_t wanted, bool generous, Value value,
                       uint32_t* sample) {
  const size_t step = std::clamp<size_t>(n / 4096, 1, 64);
  size_t size = 0;
  for (size_t group = 0; group * step * kSampleRun < n; ++group) {
    // Another place in each group, for tensors that are periodic.
    const size_t from = (group * step + group * 37 % step) * kSampleRun;
    const size_t to = std::min(n, from + kSampleRun);
    for (size_t i = from; i < to; ++i) {
      sample[size++] = MagnitudeBits(value(i));
    }
  }
  if (size == 0) return FLT_TRUE_MIN;
  double rank = static_cast<double>(wanted) * static_cast<double>(size) /
                static_cast<double>(n);
  if (generous && step > 1) rank += 3 * std::sqrt(rank) + 1;
  const auto k = static_cast<size_t>(
      std::clamp(std::round(rank), 1.0, static_cast<double>(size)));
  const uint32_t bits =
      KthLargest(size, k, [sample](size_t i) { return sample[i]; });
  return std::bit_cast<float>(std::max<uint32_t>(bits, 1));
}

// Leaves, of `count` elements in ascending order of index, the k largest.
size_t KeepLargest(size_t k, size_t count, uint32_t* indices, float* values);

// Lists the k largest of `from` [n], in ascending order of index; the lists
// have room for n. Returns how many there are: fewer where fewer are not 0.
size_t FindLargest(const float* from, size_t n, size_t k, uint32_t* indices,
                   float* values);

}  // namespace telegrad
