#pragma once

#include <algorithm>

#include "base/clock.h"

namespace telegrad {

struct ControlTiming {
  Duration join = std::chrono::seconds(60);  // until everyone has joined
  Duration heartbeat = std::chrono::seconds(1);
  Duration dead = std::chrono::seconds(10);     // silence that means death
  Duration teardown = std::chrono::seconds(3);  // until a member must be gone
  // Who has not joined must speak within it.
  Duration first_word = std::chrono::seconds(2);
  // A member that has not reached the scheduler for so long says so.
  Duration unreached_word = std::chrono::seconds(5);
};

// A turn that is late by more means that the process was stopped or starved
// itself: its deadlines move by as much.
inline Duration LateGuard(const ControlTiming& timing) {
  return std::min<Duration>(std::chrono::seconds(2), timing.dead / 5);
}

}  // namespace telegrad
