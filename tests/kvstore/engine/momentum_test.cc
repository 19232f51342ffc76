// Momentum that is kept in front of the codec.
#include <limits>
#include <utility>

#include "kvstore/optimizer.h"
#include "tests/kvstore/engine/devices.h"

namespace telegrad {
namespace {

using testing::Devices;
using testing::Gradients;
using testing::IsOk;
using testing::StatusIs;

constexpr size_t kPushedElems = 229;  // chunks of 64: the last is not whole
constexpr float kPushedRate = 0.5f;   // exact in what follows

CompressionConfig CompressionWith(const std::string& type,
                                  PushMomentum momentum,
                                  float rate = kPushedRate) {
  CompressionConfig compression;
  compression.type = type;
  compression.has_guard = false;
  compression.threshold = {ThresholdSpec::Kind::kAbsolute, 1.0f / 128};
  compression.momentum = momentum;
  compression.momentum_rate = rate;
  return compression;
}

// What devices push, of `m` that they keep.
Gradients PushedOf(PushMomentum kind, const Gradients& grads, Gradients& m) {
  Gradients pushed = grads;
  m.resize(grads.size(), std::vector<float>(kPushedElems));
  for (size_t d = 0; d < grads.size(); ++d) {
    for (size_t i = 0; i < kPushedElems; ++i) {
      m[d][i] = kPushedRate * m[d][i] + grads[d][i];
      pushed[d][i] = kind == PushMomentum::kNesterov
                         ? grads[d][i] + kPushedRate * m[d][i]
                         : m[d][i];
    }
  }
  return pushed;
}

// Clears the momentum of elements that `pushed` sends by `sent`, devices of one
// contributor each.
void Mask(std::vector<std::unique_ptr<Devices>>& sent, const Gradients& pushed,
          Gradients& m) {
  for (size_t d = 0; d < sent.size(); ++d) {
    const auto outs = sent[d]->Round({pushed[d]});
    ASSERT_THAT(outs, IsOk());
    for (size_t i = 0; i < kPushedElems; ++i) {
      if ((*outs)[0][i] != 0) m[d][i] = 0;
    }
  }
}

class EveryCodecWithMomentum : public ::testing::TestWithParam<const Codec*> {};

INSTANTIATE_TEST_SUITE_P(, EveryCodecWithMomentum,
                         ::testing::ValuesIn(AllCodecs()),
                         [](const auto& codec) {
                           return "Of" + codec.param->traits().name;
                         });

TEST_P(EveryCodecWithMomentum, EncodesWhatItMakesOfGradients) {
  const std::string& type = GetParam()->traits().name;
  for (const PushMomentum kind :
       {PushMomentum::kHeavyBall, PushMomentum::kNesterov}) {
    Devices with(kPushedElems, 2, CompressionWith(type, kind));
    Devices without(kPushedElems, 2,
                    CompressionWith(type, PushMomentum::kNone));
    CompressionConfig alone = CompressionWith(type, PushMomentum::kNone);
    alone.reply = ReplyMode::kDense;
    std::vector<std::unique_ptr<Devices>> sent;
    if (GetParam()->traits().masks_momentum) {
      for (int d = 0; d < 2; ++d) {
        sent.push_back(std::make_unique<Devices>(kPushedElems, 1, alone));
      }
    }
    Gradients momentum;
    for (int step = 0; step < 6; ++step) {
      const Gradients grads = testing::GradsOf(2, step, kPushedElems);
      const Gradients pushed = PushedOf(kind, grads, momentum);
      const auto outs = with.Round(grads);
      ASSERT_THAT(outs, IsOk());
      ASSERT_EQ(*outs, *without.Round(pushed))
          << ToString(kind) << " step " << step;
      Mask(sent, pushed, momentum);
    }
  }
}

// Steps without momentum by what is pushed, without a codec, are steps with it
// by the gradients; up to some 8 roundings in each of 25 steps.
TEST(Momentum, OfPushesIsTheOptimizers) {
  for (const auto& [push, kind] :
       {std::pair(PushMomentum::kHeavyBall, OptimizerKind::kSgd),
        std::pair(PushMomentum::kNesterov, OptimizerKind::kNag)}) {
    Devices devices(kPushedElems, 2, CompressionWith("none", push, 0.9f));
    const OptimizerConfig with = {
        .kind = kind,
        .sgd = {.learning_rate = 0.1f, .momentum_rate = 0.9f, .rescale = 0.5f}};
    OptimizerConfig without = with;
    without.sgd.momentum_rate = 0;
    OptimizerState a, b;
    std::vector<float> expected(kPushedElems, 1), weights(kPushedElems, 1);
    for (int step = 0; step < 25; ++step) {
      const Gradients grads = testing::GradsOf(2, step, kPushedElems);
      std::vector<float> sum = grads[0];
      for (size_t i = 0; i < kPushedElems; ++i) sum[i] += grads[1][i];
      const auto outs = devices.Round(grads);
      ASSERT_THAT(outs, IsOk());
      a.Step(with, {}, sum.data(), kPushedElems, expected.data(), {});
      b.Step(without, {}, (*outs)[0].data(), kPushedElems, weights.data(), {});
    }
    for (size_t i = 0; i < kPushedElems; ++i) {
      ASSERT_NEAR(weights[i], expected[i], 25 * 8 * 6e-8) << ToString(push);
    }
  }
}

TEST(Momentum, GoesOnAsItWasSaved) {
  const CompressionConfig compression =
      CompressionWith("int8", PushMomentum::kNesterov);
  Devices devices(kPushedElems, 1, compression);
  ASSERT_THAT(devices.Round(testing::GradsOf(1, 0, kPushedElems)), IsOk());
  const auto saved = devices.codec(0).Save();
  ASSERT_THAT(saved, IsOk());
  Devices other(kPushedElems, 1, compression);
  ASSERT_THAT(other.codec(0).Load(*saved), IsOk());
  EXPECT_EQ(*other.codec(0).Save(), *saved);
  const auto next = devices.Round(testing::GradsOf(1, 1, kPushedElems));
  ASSERT_THAT(next, IsOk());
  Devices fresh(kPushedElems, 1, compression);
  EXPECT_NE(*fresh.Round(testing::GradsOf(1, 1, kPushedElems)), *next);
  // Not in a store whose pushes have none.
  Devices without(kPushedElems, 1,
                  CompressionWith("int8", PushMomentum::kNone));
  EXPECT_THAT(without.codec(0).Load(*saved),
              StatusIs(absl::StatusCode::kDataLoss, ""));
}

// The element that the policy counts as 0 leaves the momentum finite.
TEST(Momentum, StaysFinite) {
  CompressionConfig compression =
      CompressionWith("none", PushMomentum::kNesterov);
  compression.nonfinite = NonFinitePolicy::kZero;
  Devices devices(kPushedElems, 1, compression);
  Gradients grads(1, std::vector<float>(kPushedElems, 1));
  ASSERT_THAT(devices.Round(grads), IsOk());
  grads[0][70] = std::numeric_limits<float>::quiet_NaN();
  auto outs = devices.Round(grads);
  ASSERT_THAT(outs, IsOk());
  EXPECT_EQ((*outs)[0][70], 0);
  grads[0][70] = 1;
  outs = devices.Round(grads);
  ASSERT_THAT(outs, IsOk());
  EXPECT_EQ((*outs)[0][70], 1 + 0.5f * (0.5f * 0.5f + 1));
  EXPECT_EQ((*outs)[0][71], 1 + 0.5f * (0.5f * 1.5f + 1));
}

}  // namespace
}  // namespace telegrad
