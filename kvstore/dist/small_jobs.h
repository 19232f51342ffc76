#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "base/thread_pool.h"

namespace telegrad {

// To wake another thread takes as long as to encode, check or add so much.
inline constexpr size_t kSmallJobBytes = size_t{16} << 10;

// Runs a job on `bytes` of memory: on the pool, or if it is small at once.
inline void Hand(ThreadPool& pool, int priority, size_t bytes,
                 std::function<void()> job) {
  if (bytes <= kSmallJobBytes) return job();
  pool.Post(priority, std::move(job));
}

}  // namespace telegrad
