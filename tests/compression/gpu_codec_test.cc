#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/dispatch.h"
#include "tests/compression/codec_variant.h"
#include "tests/kernels/cuda_memory.h"
#include "tests/testing/status_matchers.h"

// Codecs on a GPU beside themselves on the CPU: the same bits.
namespace telegrad {
namespace {

using kernels::testing::AllocateManaged;
using kernels::testing::AllocateOnGpu;
using kernels::testing::CopyFromGpu;
using kernels::testing::FreeManaged;
using kernels::testing::FreeOnGpu;
using kernels::testing::WaitForGpu;
using testing::IsOk;

constexpr size_t kElems = 4099;
constexpr int kSteps = 3;
constexpr float kThreshold = 0.5f;

// Floats that both can use.
class Floats {
 public:
  Floats() : data_(static_cast<float*>(AllocateManaged(4 * kElems))) {
    std::fill_n(data_, kElems, 0.0f);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { FreeManaged(data_); }
  Bytes view() { return {data_, 4 * kElems}; }
  std::vector<float> values() const { return {data_, data_ + kElems}; }
  void Fill(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), data_);
  }

 private:
  float* const data_;
};

std::vector<float> Gradient(int step) {
  Random random(7, static_cast<uint64_t>(step));
  std::vector<float> values(kElems);
  for (float& value : values) value = random.NextNormal();
  return values;
}

// One codec on both devices, with what its calls need.
class Both {
 public:
  Both(const PreparedCodec& cpu, const PreparedCodec& gpu)
      : cpu_(cpu), gpu_(gpu), cpu_payload_(cpu.max_encoded_bytes()) {
    if (!cpu.traits().needs_residual) return;
    gpu_state_.residual = residual_.view();
    cpu_state_.residual = View(cpu_residual_);
  }
  Both(const Both&) = delete;
  Both& operator=(const Both&) = delete;
  ~Both() {
    FreeManaged(result_);
    FreeOnGpu(payload_);
  }

  void Encode(int step) {
    const EncodeParams params = ParamsOf(step);
    std::vector<float> values = Gradient(step);
    grad_.Fill(values);
    EncodeResult cpu_result;
    ASSERT_THAT(cpu_.Encode(View(values), cpu_state_, params,
                            cpu_payload_.view(), &cpu_result, {}),
                IsOk());
    ASSERT_THAT(gpu_.Encode(grad_.view(), gpu_state_, params,
                            {payload_, cpu_payload_.size()}, result_, {}),
                IsOk());
    Compare(cpu_result);
  }

  // Of a 16-bit gradient; whether the codec takes one.
  void EncodeHalf(HalfFormat format, int step, bool* is_taken) {
    const EncodeParams params = ParamsOf(step);
    std::vector<uint16_t> halves = Halves(format, Gradient(step));
    std::memcpy(grad_.view().data, halves.data(), 2 * kElems);
    const ConstBytes on_gpu = {grad_.view().data, 2 * kElems};
    EncodeResult cpu_result;
    const absl::Status on_cpu =
        cpu_.EncodeHalf(format, {halves.data(), 2 * kElems}, cpu_state_, params,
                        cpu_payload_.view(), &cpu_result, {});
    const absl::Status status =
        gpu_.EncodeHalf(format, on_gpu, gpu_state_, params,
                        {payload_, cpu_payload_.size()}, result_, {});
    ASSERT_EQ(status.code(), on_cpu.code()) << status << on_cpu;
    *is_taken = status.ok();
    if (*is_taken) Compare(cpu_result);
  }

  // What both encoders have left.
  void Compare(const EncodeResult& cpu_result) {
    ASSERT_STREQ(WaitForGpu(), "");
    num_bytes_ = cpu_result.encoded_bytes;
    ASSERT_EQ(result_->encoded_bytes, num_bytes_);
    Buffer copy(num_bytes_);
    CopyFromGpu(copy.data(), payload_, num_bytes_);
    ASSERT_EQ(std::memcmp(copy.data(), cpu_payload_.data(), num_bytes_), 0);
    EXPECT_EQ(result_->stats.num_nonzero, cpu_result.stats.num_nonzero);
    ASSERT_EQ(residual_.values(), cpu_residual_);
  }

  void Decode() {
    const ConstBytes on_cpu = {cpu_payload_.data(), num_bytes_};
    const ConstBytes on_gpu = {payload_, num_bytes_};
    ASSERT_THAT(cpu_.Decode(on_cpu, kThreshold, View(cpu_decoded_), {}),
                IsOk());
    ASSERT_THAT(gpu_.Decode(on_gpu, kThreshold, decoded_.view(), {}), IsOk());
    ASSERT_THAT(cpu_.DecodeAdd(on_cpu, kThreshold, View(cpu_sum_), {}), IsOk());
    ASSERT_THAT(gpu_.DecodeAdd(on_gpu, kThreshold, sum_.view(), {}), IsOk());
    ASSERT_STREQ(WaitForGpu(), "");
    ASSERT_EQ(decoded_.values(), cpu_decoded_);
    ASSERT_EQ(sum_.values(), cpu_sum_);
  }

 private:
  static EncodeParams ParamsOf(int step) {
    EncodeParams params{.threshold = kThreshold};
    params.step = static_cast<uint64_t>(step);
    return params;
  }
  static std::vector<uint16_t> Halves(HalfFormat format,
                                      const std::vector<float>& values) {
    const kernels::CastKernels& cast = kernels::CpuKernels().cast;
    std::vector<uint16_t> halves(values.size());
    EncodeStats stats;
    (format == HalfFormat::kFp16 ? cast.fp16 : cast.bf16)
        .encode(values.data(), nullptr, values.size(), NonFinite::kZero,
                reinterpret_cast<uint8_t*>(halves.data()), &stats, {});
    return halves;
  }
  static Bytes View(std::vector<float>& values) {
    return {values.data(), 4 * kElems};
  }

  const PreparedCodec& cpu_;
  const PreparedCodec& gpu_;
  Floats grad_;
  Floats residual_;
  Floats decoded_;
  Floats sum_;
  std::vector<float> cpu_residual_ = std::vector<float>(kElems);
  std::vector<float> cpu_decoded_ = std::vector<float>(kElems);
  std::vector<float> cpu_sum_ = std::vector<float>(kElems);
  Buffer cpu_payload_;
  void* const payload_ = AllocateOnGpu(cpu_payload_.size());
  EncodeResult* const result_ =
      new (AllocateManaged(sizeof(EncodeResult))) EncodeResult;
  size_t num_bytes_ = 0;
  CodecState cpu_state_;
  CodecState gpu_state_;
};

class GpuCodec
    : public ::testing::TestWithParam<std::shared_ptr<const Variant>> {};

TEST_P(GpuCodec, EncodesAndDecodesTheBitsOfTheCpu) {
  const auto gpu = GetParam()->Prepare(kElems, {DeviceKind::kCuda, 0});
  if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  const auto cpu = GetParam()->Prepare(kElems, Device{});
  ASSERT_THAT(cpu, IsOk());
  if (GetParam()->traits().lossless) GTEST_SKIP() << "copies on the CPU only";
  Both both(**cpu, **gpu);
  for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
    SCOPED_TRACE(step);
    both.Encode(step);
    if (!HasFatalFailure()) both.Decode();
  }
}

TEST_P(GpuCodec, EncodesHalvesAsTheCpuOrNeitherDoes) {
  const auto gpu = GetParam()->Prepare(kElems, {DeviceKind::kCuda, 0});
  if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  const auto cpu = GetParam()->Prepare(kElems, Device{});
  ASSERT_THAT(cpu, IsOk());
  const bool is_2bit = (*cpu)->traits().name == std::string("2bit");
  for (const HalfFormat format : {HalfFormat::kFp16, HalfFormat::kBf16}) {
    Both both(**cpu, **gpu);
    for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
      SCOPED_TRACE(step);
      bool is_taken = false;
      both.EncodeHalf(format, step, &is_taken);
      if (HasFatalFailure()) return;
      EXPECT_EQ(is_taken, is_2bit && (*cpu)->packing() == 0);
      if (is_taken) both.Decode();
    }
  }
}

// Where a server's work is not there for a GPU, it says so.
TEST_P(GpuCodec, ReencodesOrSaysThatItCannot) {
  const auto gpu = GetParam()->Prepare(kElems, {DeviceKind::kCuda, 0});
  if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  const size_t max_bytes = (*gpu)->max_encoded_bytes();
  void* const payload = AllocateOnGpu(2 * max_bytes);
  const std::vector<ConstBytes> payloads = {{payload, max_bytes}};
  ReencodeState state;
  size_t bytes = 0;
  const absl::Status status = (*gpu)->Reencode(
      payloads, {.threshold = kThreshold}, 0, state,
      {static_cast<std::byte*>(payload) + max_bytes, max_bytes}, &bytes, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  FreeOnGpu(payload);
}

INSTANTIATE_TEST_SUITE_P(AllCodecs, GpuCodec, ::testing::ValuesIn(Variants()),
                         [](const auto& variant) {
                           return variant.param->TestName();
                         });

}  // namespace
}  // namespace telegrad
