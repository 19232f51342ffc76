#pragma once

#include <sched.h>

#include "base/clock.h"

namespace telegrad {

// Gives the core to others.
inline Duration TimeYield() {
  const TimePoint before = Clock::now();
  sched_yield();
  return Clock::now() - before;
}

// When a thread that polls memory gives up its core. A yield costs as much as
// several polls, and the answer of a peer on this host with a core of its own
// mostly comes before; but where somebody else wants this core, it may be the
// one who computes what is waited for. How long the last yield took tells which
// it is. One thread.
class IdlePolls {
 public:
  using YieldFn = Duration();  // how long it took
  static constexpr unsigned kPollsPerYield = 64;
  // Nobody else ran in a yield of less.
  static constexpr Duration kShortYield = std::chrono::microseconds(1);

  explicit IdlePolls(YieldFn* yield = TimeYield) : yield_(yield) {}

  // Before the first poll of a wait.
  void Restart() { num_polls_ = 0; }
  // After a poll that found nothing. With `is_cheap` false the polls to come
  // are system calls, beside which a yield is none.
  // Whether it yielded.
  bool Count(bool is_cheap = true) {
    if (++num_polls_ % polls_per_yield_ != 0) return false;
    const bool is_alone = yield_() < kShortYield;
    polls_per_yield_ = is_alone && is_cheap ? kPollsPerYield : 1;
    return true;
  }

 private:
  YieldFn* const yield_;
  unsigned num_polls_ = 0;
  unsigned polls_per_yield_ = 1;
};

}  // namespace telegrad
