#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "compression/codec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

constexpr size_t kNumElems = 1003;
constexpr uint32_t kWorkers = 3;  // replies have the quantum of 4

// What a server of `threshold` does, element by element.
class Reference {
 public:
  std::vector<float> Reply(const std::vector<float>& sum, float threshold) {
    std::vector<float> reply(kNumElems);
    for (size_t i = 0; i < kNumElems; ++i) {
      residual_[i] += sum[i];
      if (std::abs(residual_[i]) < threshold) continue;
      reply[i] = residual_[i] < 0 ? -threshold : threshold;
      residual_[i] -= reply[i];
    }
    return reply;
  }
  const std::vector<float>& residual() const { return residual_; }

 private:
  std::vector<float> residual_ = std::vector<float>(kNumElems);
};

class ThresholdReencode : public ::testing::Test {
 protected:
  ThresholdReencode() {
    codec_ = *(*FindCodec("threshold"))->Prepare(kNumElems, Device{});
    for (Buffer& residual : residuals_) {
      residual = Buffer(4 * kNumElems);
      encoders_.emplace_back();
      encoders_.back().residual = residual.view();
    }
  }

  // One step of all workers, gradients of about `size`; compares the server's
  // reply and residual with the reference's.
  void Step(float threshold, float size) {
    std::vector<Buffer> frames;
    std::vector<ConstBytes> payloads;
    std::vector<float> sum(kNumElems);
    for (CodecState& encoder : encoders_) {
      std::vector<float> grad(kNumElems);
      for (float& value : grad) {
        value = random_.NextUniform(-size, size);
      }
      frames.emplace_back(codec_->max_encoded_bytes());
      EncodeResult result;
      ASSERT_THAT(codec_->Encode({grad.data(), 4 * kNumElems}, encoder,
                                 {.threshold = threshold}, frames.back().view(),
                                 &result, {}),
                  IsOk());
      payloads.emplace_back(frames.back().data(), result.encoded_bytes);
    }
    ASSERT_THAT(
        codec_->SumDecode(payloads, threshold, {sum.data(), 4 * kNumElems}, {}),
        IsOk());
    Buffer reply(codec_->max_encoded_bytes());
    size_t reply_bytes = 0;
    ASSERT_THAT(codec_->Reencode(payloads, {.threshold = threshold}, 0, state_,
                                 reply.view(), &reply_bytes, {}),
                IsOk());
    std::vector<float> decoded(kNumElems);
    ASSERT_THAT(codec_->Decode({reply.data(), reply_bytes}, 0,
                               {decoded.data(), 4 * kNumElems}, {}),
                IsOk());
    EXPECT_EQ(decoded, reference_.Reply(sum, 4 * threshold));
    const auto* residual = state_.residual.as<float>();
    EXPECT_EQ(std::vector<float>(residual, residual + kNumElems),
              reference_.residual());
  }

  std::unique_ptr<PreparedCodec> codec_;
  Buffer residuals_[kWorkers];
  std::vector<CodecState> encoders_;
  ReencodeState state_;
  Reference reference_;
  Random random_{5};
};

// Powers of two: sums are exact in any order.
TEST_F(ThresholdReencode, IsTheRuleElementByElement) {
  for (int step = 0; step < 200; ++step) ASSERT_NO_FATAL_FAILURE(Step(0.5f, 1));
}

// With a smaller threshold residuals of before reach it without being named.
TEST_F(ThresholdReencode, ThresholdsThatFallAndRise) {
  for (const float threshold : {2.0f, 0.125f, 0.125f, 8.0f, 1.0f, 0.25f}) {
    for (int step = 0; step < 40; ++step) {
      ASSERT_NO_FATAL_FAILURE(Step(threshold, 1));
    }
  }
}

// A payload's own threshold counts, also where it is not the agreed one.
TEST_F(ThresholdReencode, PayloadsWithAThresholdOfTheirOwn) {
  ASSERT_NO_FATAL_FAILURE(Step(1.0f, 2));
  const std::vector<float> grad(kNumElems, 100.0f);
  Buffer frame(codec_->max_encoded_bytes());
  EncodeResult result;
  ASSERT_THAT(codec_->Encode({grad.data(), 4 * kNumElems}, encoders_[0],
                             {.threshold = 64.0f}, frame.view(), &result, {}),
              IsOk());
  const std::vector<ConstBytes> payloads(
      kWorkers, ConstBytes(frame.data(), result.encoded_bytes));
  Buffer reply(codec_->max_encoded_bytes());
  size_t reply_bytes = 0;
  ASSERT_THAT(codec_->Reencode(payloads, {.threshold = 1.0f}, 0, state_,
                               reply.view(), &reply_bytes, {}),
              IsOk());
  reference_.Reply(std::vector<float>(kNumElems, kWorkers * 64.0f), 4.0f);
  for (int step = 0; step < 60; ++step) ASSERT_NO_FATAL_FAILURE(Step(1.0f, 2));
}

}  // namespace
}  // namespace telegrad
