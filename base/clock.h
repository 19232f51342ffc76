#pragma once

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

inline Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace telegrad
