#include "base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace telegrad {
namespace {

TEST(FromSeconds, StaysWithinWhatAPointOfTimeHolds) {
  const double kInfinity = std::numeric_limits<double>::infinity();
  const TimePoint now = Clock::now();
  EXPECT_EQ(FromSeconds(1.5), std::chrono::milliseconds(1500));
  EXPECT_GT(now + FromSeconds(kInfinity), now);
  EXPECT_GT(now + FromSeconds(1e30), now);
  EXPECT_LT(now + FromSeconds(-kInfinity), now);
  EXPECT_LT(now + FromSeconds(std::numeric_limits<double>::quiet_NaN()), now);
}

}  // namespace
}  // namespace telegrad
