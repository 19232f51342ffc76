#include "trainer/run/exchange_clock.h"

#include <gtest/gtest.h>

namespace telegrad {
namespace {

TEST(ExchangeClock, StartsAtTheFirstPushOfTheStep) {
  const TimePoint start = Clock::now();
  ExchangeClock clock;
  clock.StartStep();
  EXPECT_EQ(clock.SecondsUntil(start), 0);
  for (const int at : {1, 2, 5}) clock.Push(start + std::chrono::seconds(at));
  EXPECT_EQ(clock.SecondsUntil(start + std::chrono::seconds(9)), 8);
  clock.StartStep();
  clock.Push(start + std::chrono::seconds(20));
  EXPECT_EQ(clock.SecondsUntil(start + std::chrono::seconds(21)), 1);
}

}  // namespace
}  // namespace telegrad
