#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kernels/dispatch.h"
#include "kernels/encode_stats.h"
#include "tests/kernels/cuda_memory.h"
#include "tests/testing/same_bits.h"

namespace telegrad::kernels::testing {

// `size` elements in memory of a table's device, `skew` bytes off a boundary of
// 64 bytes; behind them lies a guard that must not change. An emulated GPU's
// memory ends to the byte under AddressSanitizer: there it has no guard.
template <typename T>
class Array {
 public:
  Array(const KernelTable& table, const std::vector<T>& values, size_t skew = 0)
      : is_cuda_(table.device == DeviceKind::kCuda), size_(values.size()) {
    const size_t bytes = skew + size_ * sizeof(T) + guard_bytes();
    memory_ = is_cuda_ ? AllocateOnGpu(std::max(bytes, size_t{1}))
                       : std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    EXPECT_NE(memory_, nullptr) << "no " << bytes << " bytes left";
    first_ = reinterpret_cast<T*>(static_cast<char*>(memory_) + skew);
    Fill(values);
    const std::vector<unsigned char> guard(guard_bytes(), kGuard);
    Write(first_ + size_, guard.data(), guard.size());
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    std::vector<unsigned char> guard(guard_bytes());
    Read(guard.data(), first_ + size_, guard.size());
    for (size_t i = 0; i < guard.size(); ++i) {
      if (guard[i] != kGuard) {
        ADD_FAILURE() << "byte " << i << " past the end was written";
        break;
      }
    }
    is_cuda_ ? FreeOnGpu(memory_) : std::free(memory_);
  }

  // For kernels: the host may not reach it.
  T* get() const { return first_; }
  void Fill(const std::vector<T>& values) const {
    Write(first_, values.data(), size_ * sizeof(T));
  }
  std::vector<T> values() const {
    std::vector<T> copy(size_);
    Read(copy.data(), first_, size_ * sizeof(T));
    return copy;
  }

 private:
  static constexpr unsigned char kGuard = 0xA5;
  size_t guard_bytes() const {
#if defined(__SANITIZE_ADDRESS__)
    if (is_cuda_) return 0;
#endif
    return 64;
  }
  void Write(void* to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    is_cuda_ ? CopyToGpu(to, from, bytes)
             : static_cast<void>(std::memcpy(to, from, bytes));
  }
  void Read(void* to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    is_cuda_ ? CopyFromGpu(to, from, bytes)
             : static_cast<void>(std::memcpy(to, from, bytes));
  }

  const bool is_cuda_;
  const size_t size_;
  void* memory_ = nullptr;
  T* first_ = nullptr;
};

inline void Wait(const KernelTable& table) {
  if (table.device != DeviceKind::kCuda) return;
  ASSERT_STREQ(WaitForGpu(), "");
}

// Every table of this machine, and the GPU's place (null, skipped) without one.
inline std::vector<const KernelTable*> Tables() {
  std::vector<const KernelTable*> tables = AllCpuKernels();
  tables.push_back(CudaKernels(nullptr));
  return tables;
}

// "cpu/AVX2" as a test's name: "cpu_AVX2".
inline std::string NameOf(
    const ::testing::TestParamInfo<const KernelTable*>& info) {
  if (info.param == nullptr || info.param->device == DeviceKind::kCuda) {
    return "cuda";
  }
  std::string name = info.param->name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

class KernelTest : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  void SetUp() override {
    std::string why_not;
    if (GetParam() == nullptr) {
      CudaKernels(&why_not);
      const char* required = std::getenv("TELEGRAD_TEST_REQUIRE");
      if (required != nullptr && std::strstr(required, "cuda") != nullptr) {
        FAIL() << why_not;
      }
      GTEST_SKIP() << why_not;
    }
  }
  const KernelTable& table() const { return *GetParam(); }
};

using ::telegrad::testing::SameBits;
inline void ExpectSameBits(const std::vector<float>& got,
                           const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(SameBits(got[i], want[i]))
        << "element " << i << ": " << got[i] << ", not " << want[i];
  }
}

// Those behind `drawn` repeat what is before.
template <typename T>
std::vector<T> Repeated(std::vector<T> drawn, size_t n) {
  const size_t period = drawn.size();
  drawn.resize(n);
  for (size_t i = period; i < n; ++i) drawn[i] = drawn[i - period];
  return drawn;
}
constexpr size_t kMostDrawn = 1000003;

// Values around +-`scale`; with `specials` about every eighth is one of the
// values that arithmetic treats unlike others.
inline std::vector<float> RandomFloats(size_t n, float scale, bool specials,
                                       uint64_t seed) {
  static constexpr float kSpecials[] = {
      0.0f,   -0.0f,       NAN,           INFINITY,       -INFINITY,
      1e-42f, -1e-42f,     3.4028235e38f, -3.4028235e38f, 0.5f,
      -0.5f,  0.49999997f, 1.1754944e-38f};
  Random random(seed);
  std::vector<float> values(std::min(n, kMostDrawn));
  for (float& value : values) {
    value = scale * random.NextNormal();
    if (specials && random.NextBelow(8) == 0) {
      value = kSpecials[random.NextBelow(std::size(kSpecials))];
    }
  }
  return Repeated(std::move(values), n);
}

// Any bytes, so code 01 and unused bits occur too.
inline std::vector<uint8_t> RandomBytes(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<uint8_t> bytes(std::min(n, kMostDrawn));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.NextU32());
  return Repeated(std::move(bytes), n);
}

// TELEGRAD_TEST_SIZES=few: for tools that slow kernels down; =short: without
// the largest, whose elements are two thirds of all.
inline bool HasSizes(const char* which) {
  const char* const set = std::getenv("TELEGRAD_TEST_SIZES");
  return set != nullptr && std::strcmp(set, which) == 0;
}
inline bool HasFewSizes() { return HasSizes("few"); }

// Each n that a vector loop could get wrong, and two primes.
inline std::vector<size_t> SizesToTry() {
  if (HasFewSizes()) return {0, 1, 33, 257, 4097, 10007};
  std::vector<size_t> sizes(258);
  for (size_t n = 0; n < sizes.size(); ++n) sizes[n] = n;
  for (size_t n : {511, 512, 513, 1023, 4095, 4097, 10007}) sizes.push_back(n);
  if (!HasSizes("short")) sizes.push_back(100003);
  return sizes;
}

// On a GPU also so many that a grid's threads take several turns each, though a
// turn be 16 elements; an emulated one has few threads.
inline std::vector<size_t> SizesToTry(const KernelTable& table) {
  std::vector<size_t> sizes = SizesToTry();
  if (table.device != DeviceKind::kCuda || HasFewSizes()) return sizes;
  const size_t large = 17 * GpuThreads() + 77;
  if (large > sizes.back()) sizes.push_back(large);
  return sizes;
}

inline void ExpectSameStats(const EncodeStats& got, const EncodeStats& want) {
  EXPECT_EQ(got.num_nonzero, want.num_nonzero);
  EXPECT_EQ(got.num_nonfinite, want.num_nonfinite);
  EXPECT_EQ(got.first_nonfinite, want.first_nonfinite);
}

}  // namespace telegrad::kernels::testing
