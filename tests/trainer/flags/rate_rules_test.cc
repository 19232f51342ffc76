#include "trainer/flags/rate_rules.h"

#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

float RateOf(const std::string& name, const std::vector<RateRule>& rules) {
  RateRules both;
  both.lr = rules;
  EXPECT_EQ(RatesOf(name, both).wd, 1);
  return RatesOf(name, both).lr;
}

TEST(RateRules, TakeTheFirstPatternThatFits) {
  const auto rules = ParseRateRules("--lr-mult", "bias=0;fc=2;*=0.5");
  ASSERT_THAT(rules, IsOk());
  EXPECT_EQ(RateOf("fc1.bias", *rules), 0);
  EXPECT_EQ(RateOf("fc1.weight", *rules), 2);
  EXPECT_EQ(RateOf("conv1.weight", *rules), 0.5);
}

TEST(RateRules, MayHaveBlanksAroundThem) {
  const auto rules = ParseRateRules("--lr-mult", " fc=2; bias=0 ; ");
  ASSERT_THAT(rules, IsOk());
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ(RateOf("conv1.bias", *rules), 0);
  EXPECT_EQ(RateOf("fc1.weight", *rules), 2);
}

TEST(RateRules, AreRefusedByTheirText) {
  EXPECT_THAT(ParseRateRules("--wd-mult", "fc=2; bias"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--wd-mult: 'bias' is not PATTERN=FACTOR"));
}

}  // namespace
}  // namespace telegrad
