#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace telegrad::ucx {

// What threads of UCX's own tell the one that makes progress. That there is
// nothing costs a load.
template <typename T>
class Mailbox {
 public:
  void Put(T letter) {
    MutexLock lock(&mutex_);
    letters_.push_back(std::move(letter));
    has_letters_.store(true, std::memory_order_release);
  }

  bool is_empty() const {
    return !has_letters_.load(std::memory_order_acquire);
  }
  // All there are, in their order.
  std::vector<T> Take() {
    if (is_empty()) return {};
    MutexLock lock(&mutex_);
    has_letters_.store(false, std::memory_order_relaxed);
    return std::exchange(letters_, {});
  }

 private:
  std::atomic<bool> has_letters_{false};
  Mutex mutex_;
  std::vector<T> letters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad::ucx
