#pragma once

#include <optional>

#include "base/clock.h"

namespace telegrad {

// How long a step's gradients and sums were under way: from its first push,
// whichever tensor that was, until the end.
class ExchangeClock {
 public:
  void StartStep() { first_push_.reset(); }
  void Push(TimePoint now) {
    if (!first_push_.has_value()) first_push_ = now;
  }
  // 0 in a step without a push.
  double SecondsUntil(TimePoint now) const {
    return first_push_.has_value() ? ToSeconds(now - *first_push_) : 0;
  }

 private:
  std::optional<TimePoint> first_push_;
};

}  // namespace telegrad
