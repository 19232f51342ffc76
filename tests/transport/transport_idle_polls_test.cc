#include <gtest/gtest.h>

#include "transport/idle_polls.h"

namespace telegrad {
namespace {

constexpr unsigned kMany = IdlePolls::kPollsPerYield;

// What the next yields take, and how many there were.
Duration yield_time;
int num_yields = 0;

Duration FakeYield() {
  ++num_yields;
  return yield_time;
}

int YieldsOf(IdlePolls& polls, unsigned num_polls, bool is_cheap = true) {
  num_yields = 0;
  for (unsigned i = 0; i < num_polls; ++i) polls.Count(is_cheap);
  return num_yields;
}

TEST(IdlePolls, KeepACoreThatNobodyElseWants) {
  IdlePolls polls(FakeYield);
  yield_time = std::chrono::nanoseconds(300);
  EXPECT_EQ(YieldsOf(polls, 1), 1);  // to see who is there
  polls.Restart();
  EXPECT_EQ(YieldsOf(polls, kMany - 1), 0);
  EXPECT_EQ(YieldsOf(polls, 1), 1);
  EXPECT_EQ(YieldsOf(polls, 4 * kMany), 4);
}

TEST(IdlePolls, GiveASharedCoreAwayEachTime) {
  IdlePolls polls(FakeYield);
  yield_time = std::chrono::microseconds(2);
  EXPECT_EQ(YieldsOf(polls, 10), 10);
  polls.Restart();
  yield_time = std::chrono::nanoseconds(300);  // the other one has ended
  EXPECT_EQ(YieldsOf(polls, kMany - 1), 1);
  yield_time = std::chrono::microseconds(2);  // and another has come
  EXPECT_EQ(YieldsOf(polls, 1), 1);
  EXPECT_EQ(YieldsOf(polls, 10), 10);
}

TEST(IdlePolls, GiveTheCoreAwayEachTimeWherePollsAreSystemCalls) {
  IdlePolls polls(FakeYield);
  yield_time = std::chrono::nanoseconds(300);
  EXPECT_EQ(YieldsOf(polls, 10, /*is_cheap=*/false), 10);
}

TEST(IdlePolls, CountFromTheLastRestart) {
  IdlePolls polls(FakeYield);
  yield_time = Duration::zero();
  YieldsOf(polls, 1);
  for (int i = 0; i < 5; ++i) {
    polls.Restart();
    EXPECT_EQ(YieldsOf(polls, kMany - 1), 0);
  }
}

}  // namespace
}  // namespace telegrad
