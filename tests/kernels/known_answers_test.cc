#include <cstdint>
#include <vector>

#include "tests/kernels/kernel_test.h"

// Letters are those of the known answers that were computed by hand and from
// apache/mxnet's quantize_2bit (C: values of apache/mxnet#7512).
namespace telegrad::kernels::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class TwoBitKnownAnswers : public KernelTest {
 protected:
  // Encodes `grad` onto residual_ and returns the codes.
  std::vector<uint8_t> Encode(const std::vector<float>& grad, float threshold,
                              NonFinite nonfinite = NonFinite::kZero) {
    residual_.resize(grad.size(), 0.0f);
    Array<float> g(table(), grad);
    Array<float> r(table(), residual_);
    Array<uint8_t> codes(table(),
                         std::vector<uint8_t>(TwoBitBytes(grad.size()), 0xFF));
    Array<EncodeStats> stats(table(), {EncodeStats{}});
    table().two_bit_encode(g.get(), r.get(), grad.size(), threshold, nonfinite,
                           codes.get(), stats.get(), Stream{});
    Wait(table());
    residual_ = r.values();
    stats_ = stats.values()[0];
    return codes.values();
  }
  std::vector<float> Decode(const std::vector<uint8_t>& codes, size_t n,
                            float threshold) {
    Array<uint8_t> c(table(), codes);
    Array<float> out(table(), std::vector<float>(n, 99.0f));
    table().two_bit_decode(c.get(), n, threshold, out.get(), Stream{});
    Wait(table());
    return out.values();
  }
  void ExpectResidualBits(const std::vector<uint32_t>& want) {
    ASSERT_EQ(residual_.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(residual_[i]), want[i]) << i;
    }
  }

  std::vector<float> residual_;
  EncodeStats stats_;
};

TEST_P(TwoBitKnownAnswers, AOfTwoStepsWithErrorFeedback) {
  const std::vector<float> first = {
      .5f,  -.5f,  .49999997f, -.49999997f, .25f,  -.25f, 0.f,
      -0.f, 1.25f, -1.25f,     .75f,        -.75f, .125f, 3.f,
      -3.f, .5f,   -.5f,       .5f,         .375f};
  const auto codes = Encode(first, .5f);
  EXPECT_THAT(codes,
              ElementsAre(0xe0, 0x00, 0xee, 0x3b, 0xb0, 0x00, 0x00, 0x00));
  ExpectResidualBits({0x00000000, 0x00000000, 0x3effffff, 0xbeffffff,
                      0x3e800000, 0xbe800000, 0x00000000, 0x00000000,
                      0x3f400000, 0xbf400000, 0x3e800000, 0xbe800000,
                      0x3e000000, 0x40200000, 0xc0200000, 0x00000000,
                      0x00000000, 0x00000000, 0x3ec00000});
  EXPECT_EQ(stats_.num_nonzero, 11u);
  EXPECT_EQ(stats_.num_nonfinite, 0u);
  EXPECT_EQ(stats_.first_nonfinite, kNoIndex);
  EXPECT_THAT(Decode(codes, 19, .5f),
              ElementsAre(.5f, -.5f, 0, 0, 0, 0, 0, 0, .5f, -.5f, .5f, -.5f, 0,
                          .5f, -.5f, .5f, -.5f, .5f, 0));

  const std::vector<float> second = {
      0,    0,     3e-8f, -3e-8f, .25f, -.25f, .5f, -.5f, 0,    0,
      .25f, -.25f, .375f, 0,      0,    -.5f,  .5f, -.5f, .125f};
  EXPECT_THAT(Encode(second, .5f),
              ElementsAre(0x0e, 0xee, 0xee, 0xfa, 0xec, 0x00, 0x00, 0x00));
  std::vector<uint32_t> rest(19, 0);
  rest[8] = std::bit_cast<uint32_t>(.25f);
  rest[9] = std::bit_cast<uint32_t>(-.25f);
  rest[13] = std::bit_cast<uint32_t>(2.f);
  rest[14] = std::bit_cast<uint32_t>(-2.f);
  ExpectResidualBits(rest);
}

// A double or fused intermediate would give code 00.
TEST_P(TwoBitKnownAnswers, A2RoundsToFloatBeforeItCompares) {
  residual_ = {.49999997f};
  EXPECT_THAT(Encode({2e-8f}, .5f), ElementsAre(0xc0, 0, 0, 0));
  ExpectResidualBits({0});
}

TEST_P(TwoBitKnownAnswers, BOfTheDistSyncTest) {
  const std::vector<uint8_t> none = {0, 0, 0, 0};
  const std::vector<uint8_t> all = {0xff, 0xf0, 0, 0};
  const auto repeat = [](float value) { return std::vector<float>(6, value); };
  const auto expect_residuals = [&](uint32_t bits) {
    ExpectResidualBits(std::vector<uint32_t>(6, bits));
  };
  EXPECT_EQ(Encode(repeat(.4f), .5f), none);
  expect_residuals(0x3ecccccd);
  EXPECT_EQ(Encode(repeat(.5f - .4f), .5f), all);
  expect_residuals(0);
  EXPECT_EQ(Encode(repeat(.2f), .5f), none);
  expect_residuals(0x3e4ccccd);
  EXPECT_EQ(Encode(repeat(.3f), .5f), all);
  expect_residuals(0);
}

TEST_P(TwoBitKnownAnswers, B2KeepsWhatRoundingLeaves) {
  const std::vector<uint8_t> none = {0, 0, 0, 0};
  const std::vector<uint8_t> all = {0xff, 0xf0, 0, 0};
  const std::vector<std::pair<float, uint32_t>> steps = {
      {.4f, 0x3ecccccd}, {.2f, 0x3dccccd0}, {.2f, 0x3e99999a}, {.2f, 0}};
  for (size_t s = 0; s < steps.size(); ++s) {
    EXPECT_EQ(Encode(std::vector<float>(6, steps[s].first), .5f),
              s % 2 == 0 ? none : all);
    ExpectResidualBits(std::vector<uint32_t>(6, steps[s].second));
  }
}

TEST_P(TwoBitKnownAnswers, COfLargeThreshold) {
  residual_ = {-3, 1, -1, 5, -2, 2, 3, -7, -2, -100};
  const auto codes = Encode({-6, -2, 3, 1, 10, 5, -3, 2, -8, 0}, 4);
  EXPECT_THAT(codes, ElementsAre(0x83, 0xf2, 0xa0, 0x00));
  EXPECT_THAT(residual_, ElementsAre(-5, -1, 2, 2, 4, 3, 0, -1, -6, -96));
  EXPECT_THAT(Decode(codes, 10, 4),
              ElementsAre(-4, 0, 0, 4, 4, 4, 0, -4, -4, -4));
}

TEST_P(TwoBitKnownAnswers, EPropagatesWhatIsNotFinite) {
  EXPECT_THAT(Encode({NAN, INFINITY, -INFINITY, 1}, .5f, NonFinite::kPropagate),
              ElementsAre(0x3b, 0, 0, 0));
  EXPECT_TRUE(std::isnan(residual_[0]));
  EXPECT_EQ(residual_[1], INFINITY);
  EXPECT_EQ(residual_[2], -INFINITY);
  EXPECT_EQ(residual_[3], .5f);
  EXPECT_EQ(stats_.num_nonzero, 3u);
  EXPECT_EQ(stats_.num_nonfinite, 0u);
}

TEST_P(TwoBitKnownAnswers, ZeroModeCountsWhatIsNotFiniteAndKeepsTheResidual) {
  residual_ = {.25f, .75f, 0, 0};
  EXPECT_THAT(Encode({1, NAN, INFINITY, -1}, .5f), ElementsAre(0xf2, 0, 0, 0));
  EXPECT_THAT(residual_, ElementsAre(.75f, .25f, 0, -.5f));
  EXPECT_EQ(stats_.num_nonzero, 3u);
  EXPECT_EQ(stats_.num_nonfinite, 2u);
  EXPECT_EQ(stats_.first_nonfinite, 1u);
}

TEST_P(TwoBitKnownAnswers, Code01DecodesToZero) {
  EXPECT_THAT(Decode({0b01'11'10'01, 0, 0, 0}, 4, 2), ElementsAre(0, 2, -2, 0));
}

// Codes +1, -1, 0, +1 and +1, -1, -1, 0: k = 2, -2, -1, 1; k + W = 4, 0, 1, 3
// in 3 planes: bit 0 of elements 2 and 3, bit 1 of 3, bit 2 of 0.
TEST_P(TwoBitKnownAnswers, SumsOfTwoFramesByHand) {
  Array<uint8_t> a(table(), {0b11'10'00'11, 0, 0, 0});
  Array<uint8_t> b(table(), {0b11'10'10'00, 0, 0, 0});
  const uint8_t* frames[] = {a.get(), b.get()};
  Array<uint8_t> packed(table(),
                        std::vector<uint8_t>(PackedSumBytes(4, 2), 0xFF));
  table().two_bit_sum_pack(frames, 2, 4, packed.get(), Stream{});
  Wait(table());
  EXPECT_THAT(packed.values(), ElementsAreArray({0b1100, 0, 0, 0, 0b1000, 0, 0,
                                                 0, 0b0001, 0, 0, 0}));
  Array<float> out(table(), std::vector<float>(4, 99.0f));
  table().packed_sum_decode(packed.get(), 2, 4, .25f, out.get(), Stream{});
  Wait(table());
  EXPECT_THAT(out.values(), ElementsAre(.5f, -.5f, -.25f, .25f));
}

// Residual 1, 0, 3, -1 and sums 2, -2, -1, 1, doubled: 5, -4, 1, 1; q = 4.
// Four times as fine; 1000/512 = 1.95, -700/512 = -1.37; what would overflow.
TEST_P(TwoBitKnownAnswers, UnitsByHand) {
  const auto run = [&](const std::vector<int32_t>& from, int bits) {
    Array<int32_t> residual(table(), from);
    table().rescale_units(residual.get(), from.size(), bits, Stream{});
    Wait(table());
    return residual.values();
  };
  EXPECT_EQ(run({5, -3, 0}, 2), (std::vector<int32_t>{20, -12, 0}));
  EXPECT_EQ(run({1000, -700, 256, -256}, -9),
            (std::vector<int32_t>{2, -1, 1, 0}));
  EXPECT_EQ(run({7, -7}, 150), (std::vector<int32_t>{1 << 28, -(1 << 28)}));
}

TEST_P(TwoBitKnownAnswers, ReencodesByHand) {
  Array<uint8_t> a(table(), {0b11'10'00'11, 0, 0, 0});
  Array<uint8_t> b(table(), {0b11'10'10'00, 0, 0, 0});
  const uint8_t* frames[] = {a.get(), b.get()};
  Array<int32_t> residual(table(), {1, 0, 3, -1});
  Array<uint8_t> codes(table(), {0xFF, 0xFF, 0xFF, 0xFF});
  table().two_bit_reencode(frames, 2, 4, residual.get(), 1, 4, codes.get(),
                           Stream{});
  Wait(table());
  EXPECT_THAT(codes.values(), ElementsAre(0b11'10'00'00, 0, 0, 0));
  EXPECT_THAT(residual.values(), ElementsAre(1, 0, 1, 1));
}

TEST_P(TwoBitKnownAnswers, SgdStepByHand) {
  Array<float> grad(table(), {2, -4});
  Array<float> weight(table(), {1, 8});
  Array<float> momentum(table(), {.5f, 0});
  const SgdParameters params = {.learning_rate = .5f,
                                .momentum_rate = .5f,
                                .weight_decay = .25f,
                                .rescale = .5f};
  table().sgd_momentum(grad.get(), 2, params, weight.get(), momentum.get(),
                       Stream{});
  Wait(table());
  EXPECT_THAT(momentum.values(), ElementsAre(-.375f, 0));
  EXPECT_THAT(weight.values(), ElementsAre(.625f, 8));
}

TEST_P(TwoBitKnownAnswers, PowerIsTheMeanOfSquaresOfWhatIsFinite) {
  Array<float> grad(table(), {1, -2, INFINITY, 1});
  Array<float> residual(table(), {0, -1, 0, 2});
  Array<double> power(table(), {-1.0});
  table().sampled_power(grad.get(), residual.get(), 4, power.get(), Stream{});
  Wait(table());
  EXPECT_EQ(power.values()[0], (1.0 + 9.0 + 9.0) / 4);
  table().sampled_power(grad.get(), nullptr, 2, power.get(), Stream{});
  Wait(table());
  EXPECT_EQ(power.values()[0], 2.5);
  table().sampled_power(grad.get(), nullptr, 0, power.get(), Stream{});
  Wait(table());
  EXPECT_EQ(power.values()[0], 0.0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, TwoBitKnownAnswers,
                         ::testing::ValuesIn(Tables()), NameOf);

TEST(TwoBitSizes, AreWholeWords) {
  EXPECT_EQ(TwoBitBytes(0), 0u);
  EXPECT_EQ(TwoBitBytes(1), 4u);
  EXPECT_EQ(TwoBitBytes(6), 4u);
  EXPECT_EQ(TwoBitBytes(16), 4u);
  EXPECT_EQ(TwoBitBytes(17), 8u);
}

TEST(PackedSumSizes, FollowTheNumberOfContributors) {
  EXPECT_EQ(SumBits(1), 2u);
  EXPECT_EQ(SumBits(3), 3u);
  EXPECT_EQ(SumBits(4), 4u);
  EXPECT_EQ(SumBits(7), 4u);
  EXPECT_EQ(SumBits(8), 5u);
  EXPECT_EQ(SumBits(kMaxSumContributors), 16u);
  EXPECT_EQ(PackedSumBytes(33, 2), 24u);
}

}  // namespace
}  // namespace telegrad::kernels::testing
