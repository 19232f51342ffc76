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

using Pushes = std::vector<std::vector<float>>;  // decoded, of each worker

// What a server of `threshold` does, element by element.
class Reference {
 public:
  std::vector<float> Reply(const Pushes& pushes, float threshold) {
    std::vector<float> reply(kNumElems);
    for (size_t i = 0; i < kNumElems; ++i) {
      for (const std::vector<float>& push : pushes) residual_[i] += push[i];
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
    std::vector<Payload> payloads;
    for (CodecState& encoder : encoders_) {
      std::vector<float> grad(kNumElems);
      for (float& value : grad) {
        value = random_.NextUniform(-size, size);
      }
      payloads.push_back(Encode(grad, threshold, encoder));
    }
    Reply(payloads, threshold, 4 * threshold);
  }

  struct Payload {
    Buffer frame;
    size_t size = 0;
    ConstBytes view() const { return {frame.data(), size}; }
  };
  Payload Encode(const std::vector<float>& grad, float threshold,
                 CodecState& encoder) {
    Payload payload = {.frame = Buffer(codec_->max_encoded_bytes())};
    EncodeResult result;
    EXPECT_THAT(codec_->Encode({grad.data(), 4 * kNumElems}, encoder,
                               {.threshold = threshold}, payload.frame.view(),
                               &result, {}),
                IsOk());
    payload.size = result.encoded_bytes;
    return payload;
  }
  std::vector<float> Decode(ConstBytes payload) {
    std::vector<float> decoded(kNumElems);
    EXPECT_THAT(codec_->Decode(payload, 0, {decoded.data(), 4 * kNumElems}, {}),
                IsOk());
    return decoded;
  }

  // The reply, of this quantum, to payloads; compares as Step does.
  void Reply(const std::vector<Payload>& payloads, float threshold,
             float quantum) {
    std::vector<ConstBytes> views;
    Pushes pushes;
    for (const Payload& payload : payloads) {
      views.push_back(payload.view());
      pushes.push_back(Decode(payload.view()));
    }
    Buffer reply(codec_->max_encoded_bytes());
    size_t reply_bytes = 0;
    ASSERT_THAT(codec_->Reencode(views, {.threshold = threshold}, 0, state_,
                                 reply.view(), &reply_bytes, {}),
                IsOk());
    ASSERT_EQ(Decode({reply.data(), reply_bytes}),
              reference_.Reply(pushes, quantum));
    const auto* residual = state_.residual.as<float>();
    ASSERT_EQ(std::vector<float>(residual, residual + kNumElems),
              reference_.residual());
  }

  std::unique_ptr<PreparedCodec> codec_;
  Buffer residuals_[kWorkers];
  std::vector<CodecState> encoders_;
  ReencodeState state_;
  Reference reference_;
  Random random_{5};
};

TEST_F(ThresholdReencode, IsTheRuleElementByElement) {
  for (int step = 0; step < 200; ++step) ASSERT_NO_FATAL_FAILURE(Step(0.5f, 1));
}

// No powers of two: the order of additions shows, which does not depend on
// whether only what payloads name is looked at.
TEST_F(ThresholdReencode, AddsPayloadsOneAfterTheOther) {
  for (const float threshold : {1.7f, 0.13f, 0.13f, 2.9f, 0.7f, 0.3f}) {
    for (int step = 0; step < 40; ++step) {
      ASSERT_NO_FATAL_FAILURE(Step(threshold, 1));
    }
  }
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
  std::vector<Payload> payloads;
  for (CodecState& encoder : encoders_) {
    payloads.push_back(
        Encode(std::vector<float>(kNumElems, 100.0f), 64.0f, encoder));
  }
  ASSERT_NO_FATAL_FAILURE(Reply(payloads, 1.0f, 4.0f));
  for (int step = 0; step < 60; ++step) ASSERT_NO_FATAL_FAILURE(Step(1.0f, 2));
}

// What is left of an element may be the threshold itself: it is sent in the
// next step, though no payload names it.
TEST_F(ThresholdReencode, ResidualsThatEqualTheThresholdAreSent) {
  const std::vector<float> zeros(kNumElems);
  std::vector<Payload> large;
  std::vector<Payload> empty;
  for (size_t w = 0; w < 2; ++w) {  // replies have the quantum of 2
    CodecState& encoder = encoders_[w];
    large.push_back(Encode(std::vector<float>(kNumElems, 2.0f), 2.0f, encoder));
    empty.push_back(Encode(zeros, 1.0f, encoder));
  }
  ASSERT_NO_FATAL_FAILURE(Reply(large, 1.0f, 2.0f));
  ASSERT_EQ(reference_.residual(), std::vector<float>(kNumElems, 2.0f));
  ASSERT_NO_FATAL_FAILURE(Reply(empty, 1.0f, 2.0f));
  EXPECT_EQ(reference_.residual(), zeros);
}

}  // namespace
}  // namespace telegrad
