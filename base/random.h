#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace telegrad {

// Philox 4x32-10: a counter-based generator, so that any element of a stream
// is a pure function of (key, counter), on every device and in any order.
// Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
inline std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter,
                                      uint64_t stream = 0) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter);
  uint32_t c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream);
  uint32_t c3 = static_cast<uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

// A sequence of random values; equal seeds and streams give equal sequences on
// every machine. One thread.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0)
      : seed_(seed), stream_(stream) {}

  uint32_t NextU32() {
    if (used_ >= 4) {
      const auto block = Philox(seed_, counter_++, stream_);
      std::copy(block.begin(), block.end(), block_);
      used_ = 0;
    }
    return block_[used_++];
  }
  // `n` times NextU32, in less time.
  void Fill(uint32_t* values, size_t n) {
    size_t i = 0;
    while (i < n && used_ < 4) values[i++] = NextU32();
    for (; i + 4 <= n; i += 4) {
      const std::array<uint32_t, 4> block = Philox(seed_, counter_++, stream_);
      std::copy(block.begin(), block.end(), values + i);
    }
    while (i < n) values[i++] = NextU32();
  }
  uint64_t NextU64() {
    const uint64_t high = NextU32();
    return high << 32 | NextU32();
  }
  // Uniform in [0, 1) on a grid of 2^-24.
  float NextUniform() {
    return static_cast<float>(NextU32() >> 8) * 0x1.0p-24f;
  }
  // Uniform in [low, high).
  float NextUniform(float low, float high) {
    return low + (high - low) * NextUniform();
  }
  // Uniform in [0, bound), bound > 0 (Lemire's multiply-shift; the bias is
  // below bound / 2^64).
  uint64_t NextBelow(uint64_t bound) {
    return static_cast<uint64_t>(
        (static_cast<unsigned __int128>(NextU64()) * bound) >> 64);
  }
  // Approximately normal (0, 1): the sum of 12 uniforms, exact in any libm.
  float NextNormal() {
    float sum = -6.0f;
    for (int i = 0; i < 12; ++i) sum += NextUniform();
    return sum;
  }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t counter_ = 0;
  uint32_t block_[4] = {};
  int used_ = 4;
};

}  // namespace telegrad
