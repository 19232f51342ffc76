#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "base/mutex.h"
#include "kvstore/job/control/fatal_event.h"

namespace telegrad {

// Ends the jobs that this process takes part in, whatever its threads are
// doing; what a signal asks for. Thread-safe.
class Cancellation {
 public:
  using Listener = std::function<void(const FatalEvent&)>;

  // Until Remove has returned, Cancel calls `listener`; at once if it was
  // called before. It must not call back.
  int64_t Add(Listener listener) {
    MutexLock lock(&mutex_);
    if (event_.has_value()) listener(*event_);
    listeners_[++last_] = std::move(listener);
    return last_;
  }
  void Remove(int64_t id) {
    MutexLock lock(&mutex_);
    listeners_.erase(id);
  }
  void Cancel(const FatalEvent& event) {
    MutexLock lock(&mutex_);
    if (event_.has_value()) return;
    event_ = event;
    for (const auto& [id, listener] : listeners_) listener(event);
  }

 private:
  Mutex mutex_;
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Listener> listeners_ ABSL_GUARDED_BY(mutex_);
  std::optional<FatalEvent> event_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
