#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace telegrad {
namespace {

// From the Random123 distribution's kat_vectors, philox4x32 10.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d,
                                                      0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6,
                                     0x6d5451fd}));
}

TEST(Random, FillsWithTheNextValues) {
  for (const size_t n : {0u, 1u, 3u, 4u, 9u, 784u}) {
    for (int before = 0; before < 5; ++before) {
      Random one(1, 2);
      Random many(1, 2);
      for (int i = 0; i < before; ++i) EXPECT_EQ(one.NextU32(), many.NextU32());
      std::vector<uint32_t> values(n);
      many.Fill(values.data(), n);
      for (const uint32_t value : values) EXPECT_EQ(value, one.NextU32());
      EXPECT_EQ(many.NextU32(), one.NextU32());
    }
  }
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  Random random(7);
  double sum = 0;
  double square = 0;
  constexpr int kSamples = 100000;
  for (int i = 0; i < kSamples; ++i) {
    const float uniform = random.NextUniform();
    ASSERT_GE(uniform, 0.0f);
    ASSERT_LT(uniform, 1.0f);
    const double normal = random.NextNormal();
    sum += normal;
    square += normal * normal;
  }
  // Five standard errors of the mean and of the variance.
  EXPECT_NEAR(sum / kSamples, 0, 5 / std::sqrt(kSamples));
  EXPECT_NEAR(square / kSamples, 1, 5 * std::sqrt(2.0 / kSamples));
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  Random random(3);
  std::array<int, 7> seen{};
  for (int i = 0; i < 7000; ++i) ++seen.at(random.NextBelow(7));
  for (int count : seen) EXPECT_GT(count, 800);
}

}  // namespace
}  // namespace telegrad
