#include <gtest/gtest.h>

#include "transport/decorators/multirail/pace.h"

namespace telegrad::multirail {
namespace {

constexpr size_t kPart = size_t{256} << 10;

TimePoint At(double seconds) { return TimePoint() + FromSeconds(seconds); }

// A part each 10 ms from `begin` on.
void SendParts(Pace& pace, double begin, int num) {
  pace.Begin(At(begin));
  for (int i = 1; i <= num; ++i) pace.Add(kPart, At(begin + 0.01 * i));
}

TEST(Pace, IsThatOfTheLastParts) {
  Pace pace;
  EXPECT_FALSE(pace.is_known());
  EXPECT_EQ(pace.SecondsFor(0, kPart, At(5)), 0);
  SendParts(pace, 5, 20);
  ASSERT_TRUE(pace.is_known());
  EXPECT_NEAR(pace.SecondsFor(0, kPart, At(5.2)), 0.01, 1e-9);
  EXPECT_NEAR(pace.SecondsFor(kPart, 2 * kPart, At(5.2)), 0.03, 1e-9);
  for (int i = 1; i <= 40; ++i) pace.Add(kPart, At(5.2 + 0.001 * i));
  EXPECT_NEAR(pace.SecondsFor(0, kPart, At(5.24)), 0.001, 1e-4);
}

TEST(Pace, SmallMessagesSayNothing) {
  Pace pace;
  pace.Begin(At(5));
  for (int i = 1; i <= 100; ++i) pace.Add(100, At(5 + 0.01 * i));
  EXPECT_FALSE(pace.is_known());
  SendParts(pace, 6, 10);
  for (int i = 1; i <= 100; ++i) pace.Add(100, At(6.1 + 0.01 * i));
  EXPECT_NEAR(pace.SecondsFor(0, kPart, At(7.2)), 0.01, 1e-9);
}

// The next part is overdue by 90 ms.
TEST(Pace, OneThatStandsStillIsLate) {
  Pace pace;
  SendParts(pace, 5, 10);
  EXPECT_NEAR(pace.SecondsFor(kPart, kPart, At(5.2)), 0.02 + 0.09, 1e-9);
  EXPECT_NEAR(pace.SecondsFor(0, kPart, At(5.2)), 0.01, 1e-9);
}

TEST(Pace, IsForgottenAfterALongPause) {
  Pace pace;
  SendParts(pace, 5, 10);
  pace.Begin(At(5.5));
  EXPECT_TRUE(pace.is_known());
  pace.Begin(At(7));
  EXPECT_FALSE(pace.is_known());
}

}  // namespace
}  // namespace telegrad::multirail
