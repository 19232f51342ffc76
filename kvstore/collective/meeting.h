#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/collective/collective.h"

namespace telegrad {

// Where the ranks of a group that are threads of one process exchange their
// addresses. Thread-safe.
class Meeting {
 public:
  explicit Meeting(int num_ranks)
      : texts_(static_cast<size_t>(num_ranks)), num_missing_(num_ranks) {}

  // What Group::Make of `rank` takes. The meeting outlives it.
  AddressExchange ExchangeOf(int rank) {
    return [this, rank](const std::string& mine, TimePoint deadline) {
      return Give(static_cast<size_t>(rank), mine, deadline);
    };
  }

 private:
  absl::StatusOr<std::vector<std::string>> Give(size_t rank,
                                                const std::string& text,
                                                TimePoint deadline) {
    MutexLock lock(&mutex_);
    texts_[rank] = text;
    if (--num_missing_ == 0) changed_.NotifyAll();
    while (num_missing_ > 0) {
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError("not all ranks came");
      }
      changed_.WaitUntil(&mutex_, deadline);
    }
    return texts_;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  int num_missing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
