#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kvstore/job/path/worker_group.h"

namespace telegrad {

// Why a worker's store has failed: the first reason counts. Thread-safe.
class WorkerFailure {
 public:
  // `wake` wakes the thread that ends what is under way.
  WorkerFailure(WorkerGroup& group, std::function<void()> wake)
      : group_(group), wake_(std::move(wake)) {}

  // Fails all operations, now and later: the io thread cuts the connections,
  // and then, when nobody touches callers' memory any more, ends the tickets.
  void Set(const absl::Status& why) {
    {
      MutexLock lock(&mutex_);
      if (status_.ok()) status_ = why;
      is_set_ = true;
    }
    wake_();
  }
  // And the job ends for all.
  void FailJob(const absl::Status& why) {
    Set(why);
    group_.Fail(why);
  }

  bool is_set() const { return is_set_; }
  absl::Status status() const {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  WorkerGroup& group_;
  const std::function<void()> wake_;
  std::atomic<bool> is_set_{false};
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
