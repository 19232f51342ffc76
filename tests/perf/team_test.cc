#include "perf/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace telegrad::perf {
namespace {

TEST(Team, HasEachElementOnce) {
  Team team(3);
  for (const size_t n : {0, 1, 63, 64, 65, 1000}) {
    std::vector<std::atomic<int>> seen(n);
    team.Run(n, 64, [&](size_t begin, size_t count) {
      for (size_t i = begin; i < begin + count; ++i) ++seen[i];
    });
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(seen[i], 1) << i << " of " << n;
  }
}

// The one share of a granule is the last thread's, which may have done it
// before the caller is back from the common start.
TEST(Team, TimeHasAllOfTheOnlyShare) {
  Team team(2);
  for (int turn = 0; turn < 1000; ++turn) {
    Duration share{};
    const double seconds = team.Run(64, 64, [&](size_t, size_t) {
      const TimePoint begin = Clock::now();
      for (std::atomic<int> i = 0; i < 1000;) ++i;
      share = Clock::now() - begin;
    });
    ASSERT_GE(seconds, ToSeconds(share)) << turn;
  }
  EXPECT_EQ(team.Run(0, 64, [](size_t, size_t) {}), 0);
}

}  // namespace
}  // namespace telegrad::perf
