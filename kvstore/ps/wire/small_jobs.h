#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "base/small_job.h"
#include "base/thread_pool.h"

namespace telegrad {

// Runs a job on `bytes` of memory: on the pool, or if it is small at once.
inline void Hand(ThreadPool& pool, int priority, size_t bytes,
                 std::function<void()> job) {
  if (bytes <= kSmallJobBytes) return job();
  pool.Post(priority, std::move(job));
}

}  // namespace telegrad
