#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace telegrad {

// Runs jobs on `num_threads` threads, larger priority first, equal priorities
// in order of posting. With zero threads Post runs the job at once. The
// destructor drops jobs that have not started and waits for those running.
// Thread-safe.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void Post(int priority, std::function<void()> job);
  int num_threads() const { return static_cast<int>(threads_.size()); }

 private:
  struct Job {
    int priority;
    uint64_t sequence;
    std::function<void()> run;
    bool operator<(const Job& other) const {  // the queue's top is the largest
      if (priority != other.priority) return priority < other.priority;
      return sequence > other.sequence;
    }
  };
  void Run();

  Mutex mutex_;
  CondVar wake_;
  std::priority_queue<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace telegrad
