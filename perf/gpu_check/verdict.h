#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <vector>

#include "kernels/encode_stats.h"

// Inputs, and what counts as equal.
namespace telegrad::gpu_check {

inline constexpr float kSpecials[] = {
    0.0f,          -0.0f,          NAN,  INFINITY, -INFINITY,  1e-42f, -1e-42f,
    3.4028235e38f, -3.4028235e38f, 0.5f, -0.5f,    0.49999997f};

inline uint32_t Next(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(state >> 33);
}

inline std::vector<float> Floats(size_t n, uint64_t seed) {
  std::vector<float> values(n);
  for (float& value : values) {
    const uint32_t bits = Next(seed);
    value = bits % 8 == 0 ? kSpecials[bits / 8 % std::size(kSpecials)]
                          : (static_cast<float>(bits % 4001) - 2000) / 1500;
  }
  return values;
}

inline std::vector<uint8_t> RandomBytes(size_t n, uint64_t seed) {
  std::vector<uint8_t> values(n);
  for (uint8_t& value : values) value = static_cast<uint8_t>(Next(seed));
  return values;
}

inline bool Equal(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (a != a && b != b);
}
template <typename T>
bool Equal(const T& a, const T& b) {
  return a == b;
}

// Counts differences, and prints the first few.
class Verdict {
 public:
  template <typename T>
  void Compare(const char* what, size_t n, uint32_t frames,
               const std::vector<T>& got, const std::vector<T>& want) {
    ++checks_;
    for (size_t i = 0; i < want.size(); ++i) {
      if (Equal(got[i], want[i])) continue;
      if (++failures_ <= 20) {
        std::printf("DIFFERS %s n %zu frames %u element %zu: %g, not %g\n",
                    what, n, frames, i, static_cast<double>(got[i]),
                    static_cast<double>(want[i]));
      }
      return;
    }
  }
  void CompareStats(const char* what, size_t n, uint32_t frames,
                    const kernels::EncodeStats& got,
                    const kernels::EncodeStats& want) {
    Compare<uint64_t>(
        what, n, frames,
        {got.num_nonzero, got.num_nonfinite, got.first_nonfinite},
        {want.num_nonzero, want.num_nonfinite, want.first_nonfinite});
  }
  size_t checks() const { return checks_; }
  size_t failures() const { return failures_; }

 private:
  size_t checks_ = 0;
  size_t failures_ = 0;
};

}  // namespace telegrad::gpu_check
