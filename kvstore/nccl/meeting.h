#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace telegrad {

// Where ranks that are threads of one process exchange addresses. Thread-safe.
class Meeting {
 public:
  explicit Meeting(size_t size) : texts_(size), num_missing_(size) {}

  absl::StatusOr<std::vector<std::string>> Give(size_t rank,
                                                const std::string& text,
                                                TimePoint deadline) {
    MutexLock lock(&mutex_);
    texts_[rank] = text;
    if (--num_missing_ == 0) changed_.NotifyAll();
    while (num_missing_ > 0) {
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError("a device did not join the others");
      }
      changed_.WaitUntil(&mutex_, deadline);
    }
    return texts_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  size_t num_missing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
