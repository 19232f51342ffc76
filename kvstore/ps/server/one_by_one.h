#pragma once

#include <deque>
#include <optional>

#include "base/mutex.h"

namespace telegrad {

// Changes that one thread at a time makes, in the order in which they come, and
// nobody waits for another: who finds nobody at it makes what comes meanwhile,
// too. Thread-safe.
class OneByOne {
 public:
  // Whether the caller makes it, and then all that Next gives; else another
  // thread does.
  bool Begin(int change) {
    MutexLock lock(&mutex_);
    changes_.push_back(change);
    if (is_running_) return false;
    is_running_ = true;
    return true;
  }
  // Nullopt: there are no more, and the caller is through.
  std::optional<int> Next() {
    MutexLock lock(&mutex_);
    is_running_ = !changes_.empty();
    if (!is_running_) return std::nullopt;
    const int next = changes_.front();
    changes_.pop_front();
    return next;
  }

 private:
  Mutex mutex_;
  std::deque<int> changes_ ABSL_GUARDED_BY(mutex_);  // to be made
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;  // somebody makes them
};

}  // namespace telegrad
