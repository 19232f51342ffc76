#pragma once

#include <barrier>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace telegrad::perf {

// Works on elements [begin, begin + count).
using RangeBody = std::function<void(size_t begin, size_t count)>;

// Threads that work on equal shares of a range at the same time; the caller is
// one of them.
class Team {
 public:
  explicit Team(int num_threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs `body` over n elements, cut at multiples of `granule`; returns the
  // seconds from the start of the first share to the end of the last.
  double Run(size_t n, size_t granule, const RangeBody& body);

 private:
  struct Span {
    TimePoint begin;
    TimePoint end;
  };

  void RunShare(int thread);

  const int num_threads_;
  size_t n_ = 0;
  size_t granule_ = 1;
  const RangeBody* body_ = nullptr;  // null: the threads end
  std::vector<Span> spans_;          // each thread's share; no share: none
  std::barrier<> border_;
  std::vector<std::thread> threads_;
};

}  // namespace telegrad::perf
