#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/dispatch.h"
#include "tests/compression/gpu_memory.h"
#include "tests/testing/status_matchers.h"

// Codecs on a GPU beside themselves on the CPU: the same bits.
namespace telegrad {
namespace {

using kernels::testing::WaitForGpu;
using testing::IsOk;

constexpr int kSteps = 3;
// Steps of the test of sparse codecs.
constexpr int kSparseSteps = 8;

// Then with many equal magnitudes, zeros in one half, nothing at all, and what
// is not finite.
std::vector<float> SparseGradient(int step) {
  std::vector<float> values = Gradient(step);
  for (size_t i = 0; i < kElems; ++i) {
    if (step == 3) values[i] = std::round(2 * values[i]) / 2;
    if (step == 4 && i < kElems / 2) values[i] = 0;
    if (step == 5) values[i] = 0;
    if (step == 6 && i % 501 == 0) values[i] = i % 2 == 0 ? NAN : -INFINITY;
  }
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
    if (!cpu.traits().masks_momentum) return;
    momentum_.Fill(cpu_momentum_);
    gpu_state_.momentum = momentum_.view();
    cpu_state_.momentum = View(cpu_momentum_);
  }

  void Encode(int step, std::vector<float> values) {
    const EncodeParams params = ParamsOf(step);
    grad_.Fill(values);
    EncodeResult cpu_result;
    ASSERT_THAT(cpu_.Encode(View(values), cpu_state_, params,
                            cpu_payload_.view(), &cpu_result, {}),
                IsOk());
    ASSERT_THAT(gpu_.Encode(grad_.view(), gpu_state_, params, payload_.view(),
                            result_.get(), {}),
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
    const absl::Status status = gpu_.EncodeHalf(
        format, on_gpu, gpu_state_, params, payload_.view(), result_.get(), {});
    ASSERT_EQ(status.code(), on_cpu.code()) << status << on_cpu;
    *is_taken = status.ok();
    if (*is_taken) Compare(cpu_result);
  }

  // What both encoders have left.
  void Compare(const EncodeResult& cpu_result) {
    ASSERT_STREQ(WaitForGpu(), "");
    num_bytes_ = cpu_result.encoded_bytes;
    ASSERT_EQ(result_->encoded_bytes, num_bytes_);
    ASSERT_TRUE(payload_.BeginsWith({cpu_payload_.data(), num_bytes_}));
    EXPECT_EQ(result_->stats.num_nonzero, cpu_result.stats.num_nonzero);
    EXPECT_EQ(result_->stats.num_nonfinite, cpu_result.stats.num_nonfinite);
    ASSERT_EQ(residual_.values(), cpu_residual_);
    if (!cpu_.traits().masks_momentum) return;
    ASSERT_EQ(momentum_.values(), cpu_momentum_);
  }

  void Decode() {
    const ConstBytes on_cpu = {cpu_payload_.data(), num_bytes_};
    const ConstBytes on_gpu = {payload_.view().data, num_bytes_};
    ASSERT_THAT(cpu_.Decode(on_cpu, kThreshold, View(cpu_decoded_), {}),
                IsOk());
    ASSERT_THAT(gpu_.Decode(on_gpu, kThreshold, decoded_.view(), {}), IsOk());
    ASSERT_THAT(cpu_.DecodeAdd(on_cpu, kThreshold, View(cpu_sum_), {}), IsOk());
    ASSERT_THAT(gpu_.DecodeAdd(on_gpu, kThreshold, sum_.view(), {}), IsOk());
    ASSERT_STREQ(WaitForGpu(), "");
    ASSERT_EQ(decoded_.values(), cpu_decoded_);
    ASSERT_EQ(sum_.values(), cpu_sum_);
  }

  // From a sum of one payload; nothing else is one to powersgd alone.
  void Learn() {
    ASSERT_THAT(
        cpu_.Learn({cpu_payload_.data(), num_bytes_}, 1, cpu_state_, {}),
        IsOk());
    ASSERT_THAT(
        gpu_.Learn({payload_.view().data, num_bytes_}, 1, gpu_state_, {}),
        IsOk());
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
  const PreparedCodec& cpu_;
  const PreparedCodec& gpu_;
  Floats grad_;
  Floats residual_;
  Floats momentum_;
  Floats decoded_;
  Floats sum_;
  std::vector<float> cpu_residual_ = std::vector<float>(kElems);
  std::vector<float> cpu_momentum_ = std::vector<float>(kElems, 1.0f);
  std::vector<float> cpu_decoded_ = std::vector<float>(kElems);
  std::vector<float> cpu_sum_ = std::vector<float>(kElems);
  Buffer cpu_payload_;
  const GpuBytes payload_{cpu_payload_.size()};
  const Managed<EncodeResult> result_;
  size_t num_bytes_ = 0;
  CodecState cpu_state_;
  CodecState gpu_state_;
};

using GpuCodec = GpuVariantTest;
using GpuCodecOfLists = GpuTest<::testing::Test>;

TEST_P(GpuCodec, IsThereWhereTheKernelsAre) {
  EXPECT_THAT(GetParam()->Prepare(kElems, {DeviceKind::kCuda, 0}), IsOk());
}

TEST_P(GpuCodec, EncodesAndDecodesTheBitsOfTheCpu) {
  Both both(*codec_.cpu, *codec_.gpu);
  for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
    SCOPED_TRACE(step);
    both.Encode(step, Gradient(step));
    if (!HasFatalFailure()) both.Decode();
  }
}

// Random ones, none and all, of payloads and of sums.
TEST_P(GpuCodec, DecodesAnyBitsWithinBoundsWhereItSaysSo) {
  constexpr uint32_t kWorkers = 3;
  const PreparedCodec& codec = *codec_.gpu;
  if (!codec.traits().decodes_any_bits) return;
  const Floats out;
  const auto bits = [](size_t size, int turn) {
    Buffer bytes(size);
    Random random(11, static_cast<uint64_t>(turn));
    for (size_t i = 0; i < size; ++i) {
      const int any = static_cast<int>(random.NextBelow(256));
      bytes.as<uint8_t>()[i] = static_cast<uint8_t>(turn == 0   ? 0
                                                    : turn == 1 ? 255
                                                                : any);
    }
    return bytes;
  };
  for (int turn = 0; turn < 6; ++turn) {
    SCOPED_TRACE(turn);
    const GpuBytes payload(bits(codec.max_encoded_bytes(), turn).view());
    ASSERT_THAT(codec.Decode(payload.view(), kThreshold, out.view(), {}),
                IsOk());
    ASSERT_STREQ(WaitForGpu(), "");
    if (!codec.traits().summable) continue;
    const GpuBytes sum(bits(codec.sum_bytes(kWorkers), turn).view());
    ASSERT_THAT(
        codec.DecodeSum(sum.view(), kWorkers, kThreshold, out.view(), {}),
        IsOk());
    ASSERT_STREQ(WaitForGpu(), "");
  }
}

TEST_P(GpuCodec, EncodesHalvesAsTheCpuOrNeitherDoes) {
  const std::string name = codec_.cpu->traits().name;
  const bool takes_halves =
      (name == "2bit" && codec_.cpu->packing() == 0) || name == "threshold";
  for (const HalfFormat format : {HalfFormat::kFp16, HalfFormat::kBf16}) {
    Both both(*codec_.cpu, *codec_.gpu);
    for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
      SCOPED_TRACE(step);
      bool is_taken = false;
      both.EncodeHalf(format, step, &is_taken);
      if (HasFatalFailure()) return;
      EXPECT_EQ(is_taken, takes_halves);
      if (is_taken) both.Decode();
    }
  }
}

// Lists of every form and length, of thresholds that a sample got right or not.
TEST_F(GpuCodecOfLists, SelectsWhatTheCpuSelects) {
  for (const char* text :
       {"threshold", "topk:0.0005", "topk:0.02", "topk:0.3", "topk:1",
        "topk:0.02:sampled=1", "dgc:0.01", "dgc:0.01:sampled=0",
        "dgc:0.01:clip=0.5", "dgc:0.001:warmup=8", "randomk:0.1", "randomk:1",
        "sparseloco", "sparseloco:0.1:decay=0.5"}) {
    SCOPED_TRACE(text);
    OnBoth codec;
    ASSERT_NO_FATAL_FAILURE(PrepareOnBoth(Variant(text), &codec));
    Both both(*codec.cpu, *codec.gpu);
    for (int step = 0; step < kSparseSteps; ++step) {
      SCOPED_TRACE(step);
      both.Encode(step, SparseGradient(step));
      if (!HasFatalFailure()) both.Decode();
      if (HasFatalFailure()) return;
    }
  }
}

// With what each step teaches the next.
TEST_P(GpuCodec, LearnsWhatTheCpuLearns) {
  Both both(*codec_.cpu, *codec_.gpu);
  for (int step = 0; step < 2 * kSteps && !HasFatalFailure(); ++step) {
    SCOPED_TRACE(step);
    both.Encode(step, Gradient(step));
    if (!HasFatalFailure()) both.Learn();
  }
}

INSTANTIATE_TEST_SUITE_P(AllCodecs, GpuCodec,
                         ::testing::ValuesIn(GpuVariants()),
                         [](const auto& variant) {
                           return variant.param->TestName();
                         });

}  // namespace
}  // namespace telegrad
