#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/dispatch.h"
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
constexpr uint64_t kServer = UINT64_MAX;

EncodeParams Params(float threshold, int step, uint64_t source) {
  return {.threshold = threshold,
          .step = static_cast<uint64_t>(step),
          .source = source};
}

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

  void Push(int step, float threshold) {
    threshold_ = threshold;
    payloads_.clear();
    on_gpu_.clear();
    for (int w = 0; w < kWorkers; ++w) {
      std::vector<float> grad = Gradient(step, w);
      EncodeResult result;
      payloads_.emplace_back(cpu_.max_encoded_bytes());
      ASSERT_THAT(cpu_.Encode(View(grad), encoders_[static_cast<size_t>(w)],
                              Params(threshold, step, static_cast<uint64_t>(w)),
                              payloads_.back().view(), &result, {}),
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

  void Reencode(int step, int16_t scale) {
    Buffer out(cpu_.max_reencoded_bytes(kWorkers));
    const GpuBytes gpu_out(out.size());
    size_t bytes = 0;
    const Managed<size_t> gpu_bytes;
    const EncodeParams params = Params(threshold_, step, kServer);
    ASSERT_THAT(cpu_.Reencode(OnCpu(), params, scale, cpu_state_, out.view(),
                              &bytes, {}),
                IsOk());
    ASSERT_THAT(gpu_.Reencode(OnGpu(), params, scale, gpu_state_,
                              gpu_out.view(), gpu_bytes.get(), {}),
                IsOk());
    ASSERT_STREQ(WaitForGpu(), "");
    ASSERT_EQ(*gpu_bytes, bytes);
    ASSERT_TRUE(gpu_out.BeginsWith({out.data(), bytes}));
  }

  void Release(int16_t scale) {
    ASSERT_THAT(
        cpu_.ReleaseResidual(threshold_, scale, cpu_state_, View(cpu_out_), {}),
        IsOk());
    ASSERT_THAT(
        gpu_.ReleaseResidual(threshold_, scale, gpu_state_, out_.view(), {}),
        IsOk());
    ExpectSameOut();
  }

 private:
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
  float threshold_ = 0;
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

using GpuCodecServer = GpuVariantTest;
using GpuCodecServerOfLists = GpuTest<::testing::Test>;

TEST_P(GpuCodecServer, SumsToTheBitsOfTheCpu) {
  Servers servers(*codec_.cpu, *codec_.gpu);
  for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
    SCOPED_TRACE(step);
    servers.Push(step, kThreshold);
    if (!HasFatalFailure()) servers.Sum();
  }
}

// With thresholds that fall, so that units become finer, and rise, so that they
// become coarser; what is left goes into a sum in the end. No power of two: the
// order of additions shows.
void ReencodeSteps(const PreparedCodec& cpu, const PreparedCodec& gpu) {
  Servers servers(cpu, gpu);
  constexpr int16_t kScales[] = {0, -2, -2, 3, 1, -1, -1, 20, 20};
  int step = 0;
  for (const int16_t scale : kScales) {
    SCOPED_TRACE(step);
    ASSERT_NO_FATAL_FAILURE(servers.Push(step, std::ldexp(0.7f, scale)));
    ASSERT_NO_FATAL_FAILURE(servers.Reencode(step, scale));
    ++step;
  }
  servers.Release(20);
}

TEST_P(GpuCodecServer, ReencodesToTheBitsOfTheCpu) {
  if (codec_.cpu->traits().lossless) return;  // nothing to encode again
  ReencodeSteps(*codec_.cpu, *codec_.gpu);
}

TEST_F(GpuCodecServerOfLists, ReencodesToTheBitsOfTheCpu) {
  for (const char* text : {"topk:0.0005", "topk:0.3", "topk:1",
                           "topk:0.02:sampled=1", "dgc:0.01:sampled=0",
                           "dgc:0.001:warmup=8", "randomk:0.1", "sparseloco"}) {
    SCOPED_TRACE(text);
    OnBoth codec;
    ASSERT_NO_FATAL_FAILURE(PrepareOnBoth(Variant(text), &codec));
    ASSERT_NO_FATAL_FAILURE(ReencodeSteps(*codec.cpu, *codec.gpu));
  }
}

// A list of any form and number of entries, with anything behind its header.
Buffer AnyList(size_t size, uint32_t format, Random* random) {
  Buffer bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes.as<uint8_t>()[i] = static_cast<uint8_t>(random->NextU32());
  }
  if (size < 8) return bytes;
  auto* const header = bytes.as<uint32_t>();
  header[0] = format;
  if (format != 3) header[1] %= static_cast<uint32_t>(size / 8);
  return bytes;
}

// Payloads are not validated on a GPU: whatever they hold, nothing is read or
// written out of bounds, and what is sent is what an encoder writes.
TEST_F(GpuCodecServerOfLists, ReencodesAnyBytesWithinBounds) {
  for (const char* text : {"threshold", "topk:0.02", "dgc:0.01"}) {
    SCOPED_TRACE(text);
    OnBoth codec;
    ASSERT_NO_FATAL_FAILURE(PrepareOnBoth(Variant(text), &codec));
    ReencodeState state;
    const size_t most = codec.gpu->max_encoded_bytes();
    const GpuBytes reply(codec.gpu->max_reencoded_bytes(2));
    const Managed<size_t> reply_bytes;
    Random random(5);
    for (const size_t size : {size_t{1}, size_t{9}, most / 2, most - 1, most}) {
      for (uint32_t format = 0; format <= 3; ++format) {
        const GpuBytes payload(AnyList(size, format, &random).view());
        const ConstBytes payloads[] = {payload.view(), payload.view()};
        ASSERT_THAT(
            codec.gpu->Reencode(payloads, Params(0.5f, 0, kServer), 0, state,
                                reply.view(), reply_bytes.get(), {}),
            IsOk());
        ASSERT_STREQ(WaitForGpu(), "");
        ASSERT_LE(*reply_bytes, codec.gpu->max_reencoded_bytes(2));
        Buffer copy(*reply_bytes);
        kernels::testing::CopyFromGpu(copy.data(), reply.view().data,
                                      copy.size());
        ASSERT_THAT(codec.cpu->Validate(copy.view()), IsOk());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllCodecs, GpuCodecServer,
                         ::testing::ValuesIn(GpuVariants()),
                         [](const auto& variant) {
                           return variant.param->TestName();
                         });

}  // namespace
}  // namespace telegrad
