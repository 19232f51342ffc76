#include "trainer/data/digits.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/crc32c.h"
#include "trainer/data/digits_draw.h"

namespace telegrad {
namespace {

TEST(Digits, AreTheSameBitsOnEveryMachine) {
  const DatasetPair pair = MakeDigits();
  ASSERT_EQ(pair.train.size(), kDigitsTrain);
  ASSERT_EQ(pair.test.size(), kDigitsTest);
  const auto crc = [](const std::vector<uint8_t>& bytes) {
    return Crc32c(bytes.data(), bytes.size());
  };
  // Recorded when the data were made; whoever changes them, changes results.
  EXPECT_EQ(crc(pair.train.pixels), 0x0a157e17u);
  EXPECT_EQ(crc({pair.train.labels.begin(), pair.train.labels.end()}),
            0x0483426fu);
  EXPECT_EQ(crc(pair.test.pixels), 0x13e89e95u);
  EXPECT_EQ(crc({pair.test.labels.begin(), pair.test.labels.end()}),
            0xdd6fbc6fu);
}

TEST(Digits, ASampleDependsOnItsSplitAndIndexOnly) {
  const DigitSample later = MakeDigit(Split::kTrain, 77);
  MakeDigit(Split::kTrain, 3);
  EXPECT_EQ(MakeDigit(Split::kTrain, 77).pixels, later.pixels);
  EXPECT_NE(MakeDigit(Split::kTest, 77).pixels, later.pixels);
  EXPECT_NE(MakeDigit(Split::kTrain, 78).pixels, later.pixels);
}

TEST(Digits, HaveAllClassesInEqualNumbersAndInk) {
  std::array<int, 10> counts{};
  constexpr int kSamples = 2000;
  for (size_t i = 0; i < kSamples; ++i) {
    const DigitSample sample = MakeDigit(Split::kTrain, i);
    ++counts.at(sample.label);
    int bright = 0;
    for (uint8_t pixel : sample.pixels) bright += pixel > 100;
    EXPECT_GT(bright, 8) << i;
    EXPECT_LT(bright, 450) << i;
  }
  // Five standard deviations of a binomial count (2000, 1/10).
  for (int count : counts) EXPECT_NEAR(count, 200, 5 * std::sqrt(180.0));
}

TEST(Digits, SineAndCosineAreAccurate) {
  for (float turns = -0.125f; turns <= 0.125f; turns += 0.001f) {
    const double radians = 2 * M_PI * double{turns};
    EXPECT_NEAR(SinTurns(turns), std::sin(radians), 0x1p-20);
    EXPECT_NEAR(CosTurns(turns), std::cos(radians), 0x1p-20);
  }
}

}  // namespace
}  // namespace telegrad
