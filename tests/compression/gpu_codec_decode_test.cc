#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/random.h"
#include "compression/codec_spec.h"
#include "kernels/dispatch.h"
#include "tests/compression/gpu_batch.h"
#include "tests/testing/status_matchers.h"

// Many answers at once on a GPU beside each of them on the CPU: the same bits.
namespace telegrad {
namespace {

using testing::IsOk;

constexpr std::array<size_t, 7> kCounts = {1,    31,   8191, 8192,
                                           8193, 9000, 30001};
constexpr size_t kRoom = size_t{128} << 10;  // bytes of one array
constexpr size_t kBytes = kRoom * kCounts.size();

// Outputs are on and off their alignment.
constexpr size_t OutOf(size_t i) { return kRoom * i + i % 3 * 4; }

class GpuCodecDecode
    : public GpuBatchTest<::testing::TestWithParam<const char*>> {
 protected:
  void SetUp() override {
    GpuBatchTest::SetUp();
    if (IsSkipped()) return;
    codes_ = queue_->MakePinned(kBytes);
    back_ = queue_->MakePinned(kBytes);
    payloads_ = queue_->MakeMemory(kBytes, stream_);
    outs_ = queue_->MakeMemory(kBytes, stream_);
    for (size_t i = 0; i < kBytes / 4; ++i) {
      codes_.as<float>()[i] = random_.NextNormal();
    }
  }

  std::unique_ptr<PreparedCodec> Prepare(size_t i, Device device) const {
    return *spec_.codec->Prepare(kCounts[i], device, spec_.options);
  }

  // By the CPU.
  void EncodeNormals(size_t i) {
    const size_t n = kCounts[i];
    const auto codec = Prepare(i, Device{});
    std::vector<float> grad(n);
    for (float& value : grad) value = random_.NextNormal();
    std::vector<float> residual(n);
    CodecState state;
    if (codec->traits().needs_residual) {
      state.residual = {reinterpret_cast<std::byte*>(residual.data()), 4 * n};
    }
    EncodeResult result;
    ASSERT_THAT(
        codec->Encode({reinterpret_cast<std::byte*>(grad.data()), 4 * n}, state,
                      {.threshold = 0.7f},
                      {codes_.data() + kRoom * i, codec->max_encoded_bytes()},
                      &result, {}),
        IsOk());
    num_bytes_[i] = result.encoded_bytes;
  }

  // half: to these, where all is decoded as parts of launches.
  void DecodeOnGpu(uint32_t num_payloads, float scale,
                   std::optional<HalfFormat> half = std::nullopt) {
    codecs_.clear();
    items_.clear();
    for (size_t i = 0; i < kCounts.size(); ++i) {
      codecs_.push_back(Prepare(i, kGpu));
      const size_t size = num_payloads == 0
                              ? num_bytes_[i]
                              : codecs_[i]->sum_bytes(num_payloads);
      items_.push_back(
          {.codec = codecs_[i].get(),
           .payload = {payloads_.data() + kRoom * i, size, kGpu},
           .num_payloads = num_payloads,
           .threshold = 0.7f,
           .out = {outs_.data() + OutOf(i), (half ? 2 : 4) * kCounts[i], kGpu},
           .scale = scale,
           .half = half});
    }
    ASSERT_TRUE(queue_->Copy(payloads_.view(), codes_.view(), stream_));
    ASSERT_THAT(DecodeMany(items_, *table_), IsOk());
    ASSERT_TRUE(queue_->Copy(back_.view(), outs_.view(), stream_));
    ASSERT_TRUE(Finish());
    ASSERT_EQ(queue_->TakeError(), "");
  }

  void CompareWithCpu(size_t i) {
    const auto cpu = Prepare(i, Device{});
    std::vector<float> want(kCounts[i]);
    DecodeItem item = items_[i];
    const std::optional<HalfFormat> half = std::exchange(item.half, {});
    item.codec = cpu.get();
    item.payload = {codes_.data() + kRoom * i, item.payload.size};
    item.out = {reinterpret_cast<std::byte*>(want.data()), 4 * kCounts[i]};
    const kernels::KernelTable& kernels = kernels::ReferenceKernels();
    ASSERT_THAT(DecodeOne(item, kernels, {}), IsOk());
    std::vector<uint8_t> bytes(4 * kCounts[i]);
    if (half.has_value()) {
      bytes.resize(2 * kCounts[i]);
      EncodeStats stats;
      (*half == HalfFormat::kFp16 ? kernels.cast.fp16 : kernels.cast.bf16)
          .encode(want.data(), nullptr, kCounts[i], NonFinite::kPropagate,
                  bytes.data(), &stats, {});
    } else {
      std::memcpy(bytes.data(), want.data(), bytes.size());
    }
    EXPECT_EQ(std::memcmp(back_.data() + OutOf(i), bytes.data(), bytes.size()),
              0)
        << kCounts[i] << " elements of " << item.num_payloads << " payloads by "
        << item.scale << ", " << bytes.size() << " bytes";
  }

  const CodecSpec spec_ = *ParseCodecSpec(GetParam());
  Buffer codes_;
  Buffer back_;
  Buffer payloads_;
  Buffer outs_;
  Random random_{3, 4};
  std::array<size_t, kCounts.size()> num_bytes_ = {};  // of payloads
  std::vector<std::unique_ptr<PreparedCodec>> codecs_;
  std::vector<DecodeItem> items_;
};

TEST_P(GpuCodecDecode, OfManyIsThatOfEach) {
  for (size_t i = 0; i < kCounts.size(); ++i) {
    ASSERT_NO_FATAL_FAILURE(EncodeNormals(i));
  }
  // Packed sums of 2bit may be of any bits; of some codecs a payload is one.
  const bool has_sums = spec_.codec->traits().summable &&
                        (spec_.codec->traits().decodes_any_bits ||
                         Prepare(0, Device{})->sum_bytes(3) == num_bytes_[0]);
  for (const uint32_t num_payloads : {0u, 3u, 16u}) {
    if (num_payloads != 0 && !has_sums) break;
    for (const float scale : {1.0f, 0.3f}) {
      for (const std::optional<HalfFormat> half : {std::optional<HalfFormat>(),
                                                   {HalfFormat::kFp16},
                                                   {HalfFormat::kBf16}}) {
        ASSERT_NO_FATAL_FAILURE(DecodeOnGpu(num_payloads, scale, half));
        for (size_t i = 0; i < kCounts.size(); ++i) CompareWithCpu(i);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, GpuCodecDecode,
    ::testing::Values("2bit", "2bit:packing=1", "int8", "int4", "int3", "int2",
                      "qsgd", "int8shared", "int4shared", "int3shared",
                      "int2shared", "fp16", "bf16", "1bit", "onebit",
                      "onebit:block=128", "threshold", "topk:0.001", "topk:0.1",
                      "randomk:0.01", "randomk:1", "sparseloco", "powersgd",
                      "powersgd:rank=3"),
    [](const auto& tested) {
      std::string name = std::string("Of") + tested.param;
      std::erase_if(name, [](char c) { return !absl::ascii_isalnum(c); });
      return name;
    });

}  // namespace
}  // namespace telegrad
