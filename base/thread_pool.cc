#include "base/thread_pool.h"

#include <utility>

#include "base/clock.h"
#include "base/short_slices.h"
#include "base/start_thread.h"

namespace telegrad {

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.push_back(StartThread([this] { Run(); }));
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Post(int priority, std::function<void()> job) {
  if (threads_.empty()) return job();
  {
    MutexLock lock(&mutex_);
    jobs_.push({priority, next_sequence_++, std::move(job)});
  }
  wake_.NotifyOne();
}

void ThreadPool::Run() {
  const ShortSlices slices;
  for (;;) {
    std::function<void()> job;
    {
      MutexLock lock(&mutex_);
      while (jobs_.empty() && !stopping_) {
        wake_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
      }
      if (stopping_) return;
      job = std::move(const_cast<Job&>(jobs_.top()).run);
      jobs_.pop();
    }
    job();
  }
}

}  // namespace telegrad
