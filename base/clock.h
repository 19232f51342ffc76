#pragma once

#include <algorithm>
#include <chrono>

namespace telegrad {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

inline double ToSeconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline double SecondsSince(TimePoint start) {
  return ToSeconds(Clock::now() - start);
}

// At most thirty years, so that a point of time plus it is one; of NaN less
// than nothing, so that nothing waits.
inline Duration FromSeconds(double seconds) {
  constexpr double kMost = 1e9;
  const double clamped = seconds > -kMost ? std::min(seconds, kMost) : -kMost;
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(clamped));
}

}  // namespace telegrad
