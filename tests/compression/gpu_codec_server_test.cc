#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/compression/gpu_memory.h"
#include "tests/testing/status_matchers.h"

// What a server does with payloads on a GPU, beside the same on the CPU: the
// same bits.
namespace telegrad {
namespace {

using kernels::testing::WaitForGpu;
using testing::IsOk;

constexpr int kSteps = 3;
constexpr int kWorkers = 3;

// What a server does with the workers' payloads, on both devices.
class Servers {
 public:
  Servers(const PreparedCodec& cpu, const PreparedCodec& gpu)
      : cpu_(cpu), gpu_(gpu), encoders_(kWorkers) {
    if (!cpu.traits().needs_residual) return;
    for (CodecState& encoder : encoders_) {
      residuals_.emplace_back(4 * kElems);
      encoder.residual = residuals_.back().view();
    }
  }

  void Push(int step) {
    payloads_.clear();
    on_gpu_.clear();
    for (int w = 0; w < kWorkers; ++w) {
      std::vector<float> grad = Gradient(step, w);
      EncodeResult result;
      payloads_.emplace_back(cpu_.max_encoded_bytes());
      ASSERT_THAT(
          cpu_.Encode(View(grad), encoders_[static_cast<size_t>(w)],
                      Params(step, w), payloads_.back().view(), &result, {}),
          IsOk());
      sizes_[w] = result.encoded_bytes;
      on_gpu_.push_back(std::make_unique<GpuBytes>(
          ConstBytes(payloads_.back().data(), result.encoded_bytes)));
    }
  }

  void Sum() {
    Buffer sum(cpu_.sum_bytes(kWorkers));
    const GpuBytes gpu_sum(gpu_.sum_bytes(kWorkers));
    ASSERT_THAT(cpu_.SumCodes(OnCpu(), sum.view(), {}), IsOk());
    ASSERT_THAT(gpu_.SumCodes(OnGpu(), gpu_sum.view(), {}), IsOk());
    ASSERT_STREQ(WaitForGpu(), "");
    ASSERT_TRUE(gpu_sum.BeginsWith(sum.view()));
    ASSERT_THAT(
        cpu_.DecodeSum(sum.view(), kWorkers, kThreshold, View(cpu_out_), {}),
        IsOk());
    ASSERT_THAT(
        gpu_.DecodeSum(gpu_sum.view(), kWorkers, kThreshold, out_.view(), {}),
        IsOk());
    ExpectSameOut();
    ASSERT_THAT(cpu_.SumDecode(OnCpu(), kThreshold, View(cpu_out_), {}),
                IsOk());
    ASSERT_THAT(gpu_.SumDecode(OnGpu(), kThreshold, out_.view(), {}), IsOk());
    ExpectSameOut();
  }

  // Whether the codec can.
  void Reencode(int step, int16_t scale, bool* is_done) {
    Buffer out(cpu_.max_encoded_bytes());
    const GpuBytes gpu_out(out.size());
    size_t bytes = 0;
    size_t gpu_bytes = 0;
    const EncodeParams params = Params(step, kWorkers);
    const absl::Status on_cpu = cpu_.Reencode(
        OnCpu(), params, scale, cpu_state_, out.view(), &bytes, {});
    const absl::Status status = gpu_.Reencode(
        OnGpu(), params, scale, gpu_state_, gpu_out.view(), &gpu_bytes, {});
    // The width of a payload would be known to the device alone.
    *is_done = on_cpu.ok() && cpu_.traits().constant_width;
    ASSERT_EQ(status.code(), *is_done ? absl::StatusCode::kOk
                                      : absl::StatusCode::kUnimplemented)
        << status << on_cpu;
    if (!*is_done) return;
    ASSERT_STREQ(WaitForGpu(), "");
    ASSERT_EQ(gpu_bytes, bytes);
    ASSERT_TRUE(gpu_out.BeginsWith({out.data(), bytes}));
  }

  void Release(int16_t scale) {
    ASSERT_THAT(
        cpu_.ReleaseResidual(kThreshold, scale, cpu_state_, View(cpu_out_), {}),
        IsOk());
    ASSERT_THAT(
        gpu_.ReleaseResidual(kThreshold, scale, gpu_state_, out_.view(), {}),
        IsOk());
    ExpectSameOut();
  }

 private:
  static EncodeParams Params(int step, int source) {
    return {.threshold = kThreshold,
            .step = static_cast<uint64_t>(step),
            .source = static_cast<uint64_t>(source)};
  }
  std::vector<ConstBytes> OnCpu() const {
    std::vector<ConstBytes> views;
    for (const Buffer& payload : payloads_) {
      views.emplace_back(payload.data(), sizes_[views.size()]);
    }
    return views;
  }
  std::vector<ConstBytes> OnGpu() const {
    std::vector<ConstBytes> views;
    for (const auto& payload : on_gpu_) views.push_back(payload->view());
    return views;
  }
  void ExpectSameOut() {
    ASSERT_STREQ(WaitForGpu(), "");
    ASSERT_EQ(out_.values(), cpu_out_);
  }

  const PreparedCodec& cpu_;
  const PreparedCodec& gpu_;
  std::vector<CodecState> encoders_;
  std::vector<Buffer> residuals_;
  std::vector<Buffer> payloads_;
  size_t sizes_[kWorkers] = {};
  std::vector<std::unique_ptr<GpuBytes>> on_gpu_;
  ReencodeState cpu_state_;
  ReencodeState gpu_state_;
  Floats out_;
  std::vector<float> cpu_out_ = std::vector<float>(kElems);
};

class GpuCodecServer
    : public ::testing::TestWithParam<std::shared_ptr<const Variant>> {};

TEST_P(GpuCodecServer, SumsToTheBitsOfTheCpu) {
  const auto gpu = GetParam()->Prepare(kElems, {DeviceKind::kCuda, 0});
  if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  const auto cpu = GetParam()->Prepare(kElems, Device{});
  ASSERT_THAT(cpu, IsOk());
  Servers servers(**cpu, **gpu);
  for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
    SCOPED_TRACE(step);
    servers.Push(step);
    if (!HasFatalFailure()) servers.Sum();
  }
}

// With thresholds that fall, so that units become finer, and rise, so that they
// become coarser; what is left goes into a sum in the end.
TEST_P(GpuCodecServer, ReencodesToTheBitsOfTheCpu) {
  const auto gpu = GetParam()->Prepare(kElems, {DeviceKind::kCuda, 0});
  if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  const auto cpu = GetParam()->Prepare(kElems, Device{});
  ASSERT_THAT(cpu, IsOk());
  Servers servers(**cpu, **gpu);
  constexpr int16_t kScales[] = {0, -2, -2, 3, 20, 20};
  int step = 0;
  bool is_done = true;
  for (const int16_t scale : kScales) {
    SCOPED_TRACE(step);
    servers.Push(step);
    if (!HasFatalFailure()) servers.Reencode(step, scale, &is_done);
    if (HasFatalFailure() || !is_done) return;
    ++step;
  }
  servers.Release(20);
}

INSTANTIATE_TEST_SUITE_P(AllCodecs, GpuCodecServer,
                         ::testing::ValuesIn(GpuVariants()),
                         [](const auto& variant) {
                           return variant.param->TestName();
                         });

}  // namespace
}  // namespace telegrad
