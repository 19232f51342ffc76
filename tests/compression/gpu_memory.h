#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "kernels/dispatch.h"
#include "tests/compression/codec_variant.h"
#include "tests/kernels/cuda_memory.h"
#include "tests/testing/status_matchers.h"

// Arrays for tests of codecs on a GPU.
namespace telegrad {

inline constexpr size_t kElems = 20011;  // more than topk samples
inline constexpr float kThreshold = 0.5f;

// Floats that both can use.
class Floats {
 public:
  Floats()
      : data_(static_cast<float*>(
            kernels::testing::AllocateManaged(4 * kElems))) {
    std::fill_n(data_, kElems, 0.0f);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { kernels::testing::FreeManaged(data_); }
  Bytes view() const { return {data_, 4 * kElems}; }
  std::vector<float> values() const { return {data_, data_ + kElems}; }
  void Fill(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), data_);
  }

 private:
  float* const data_;
};

// One value that both can use.
template <typename T>
class Managed {
 public:
  Managed() : value_(new (kernels::testing::AllocateManaged(sizeof(T))) T{}) {}
  Managed(const Managed&) = delete;
  Managed& operator=(const Managed&) = delete;
  ~Managed() { kernels::testing::FreeManaged(value_); }
  T* get() const { return value_; }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* const value_;
};

// Bytes that only the GPU can use.
class GpuBytes {
 public:
  explicit GpuBytes(size_t size)
      : data_(kernels::testing::AllocateOnGpu(size)), size_(size) {}
  explicit GpuBytes(ConstBytes bytes) : GpuBytes(bytes.size) {
    kernels::testing::CopyToGpu(data_, bytes.data, size_);
  }
  GpuBytes(const GpuBytes&) = delete;
  GpuBytes& operator=(const GpuBytes&) = delete;
  ~GpuBytes() { kernels::testing::FreeOnGpu(data_); }
  Bytes view() const { return {data_, size_}; }
  // Whether its beginning is this.
  bool BeginsWith(ConstBytes bytes) const {
    Buffer copy(bytes.size);
    kernels::testing::CopyFromGpu(copy.data(), data_, bytes.size);
    return std::memcmp(copy.data(), bytes.data, bytes.size) == 0;
  }

 private:
  void* const data_;
  const size_t size_;
};

inline std::vector<float> Gradient(int step, int worker = 0) {
  Random random(7 + static_cast<uint64_t>(worker), static_cast<uint64_t>(step));
  std::vector<float> values(kElems);
  for (float& value : values) value = random.NextNormal();
  return values;
}

// Every codec, and options that need work of their own.
inline std::vector<std::shared_ptr<const Variant>> GpuVariants() {
  auto variants = Variants();
  for (const char* text : {"powersgd:rank=5", "terngrad:clip=2.5"}) {
    variants.push_back(std::make_shared<Variant>(text));
  }
  return variants;
}

inline Bytes View(std::vector<float>& values) {
  return {values.data(), 4 * kElems};
}

// One codec on the CPU and on a GPU.
struct OnBoth {
  std::unique_ptr<PreparedCodec> cpu;
  std::unique_ptr<PreparedCodec> gpu;
};
inline void PrepareOnBoth(const Variant& variant, OnBoth* codec) {
  auto gpu = variant.Prepare(kElems, {DeviceKind::kCuda, 0});
  ASSERT_THAT(gpu, testing::IsOk());
  auto cpu = variant.Prepare(kElems, Device{});
  ASSERT_THAT(cpu, testing::IsOk());
  *codec = {*std::move(cpu), *std::move(gpu)};
}

// Skips where there is no GPU, or fails where one is demanded.
template <typename Test>
class GpuTest : public Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (kernels::CudaKernels(&why_not) != nullptr) return;
    const char* const required = std::getenv("TELEGRAD_TEST_REQUIRE");
    if (required != nullptr && std::strstr(required, "cuda") != nullptr) {
      FAIL() << why_not;
    }
    GTEST_SKIP() << why_not;
  }
};

class GpuVariantTest
    : public GpuTest<::testing::TestWithParam<std::shared_ptr<const Variant>>> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) PrepareOnBoth(*GetParam(), &codec_);
  }

  OnBoth codec_;
};

}  // namespace telegrad
