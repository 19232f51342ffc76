#include "perf/team.h"

#include <algorithm>

namespace telegrad::perf {

Team::Team(int num_threads)
    : num_threads_(num_threads),
      spans_(static_cast<size_t>(num_threads)),
      border_(num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) {
    threads_.emplace_back([this, thread] {
      while (true) {
        border_.arrive_and_wait();
        if (body_ == nullptr) return;
        RunShare(thread);
        border_.arrive_and_wait();
      }
    });
  }
}

Team::~Team() {
  body_ = nullptr;
  border_.arrive_and_wait();
  for (std::thread& thread : threads_) thread.join();
}

double Team::Run(size_t n, size_t granule, const RangeBody& body) {
  n_ = n;
  granule_ = granule;
  body_ = &body;
  std::fill(spans_.begin(), spans_.end(),
            Span{.begin = TimePoint::max(), .end = TimePoint::min()});
  border_.arrive_and_wait();
  RunShare(0);
  border_.arrive_and_wait();
  Span all = spans_[0];
  for (const Span& each : spans_) {
    all.begin = std::min(all.begin, each.begin);
    all.end = std::max(all.end, each.end);
  }
  return all.begin < all.end ? ToSeconds(all.end - all.begin) : 0;
}

void Team::RunShare(int thread) {
  const size_t granules = (n_ + granule_ - 1) / granule_;
  const auto count = static_cast<size_t>(num_threads_);
  const auto index = static_cast<size_t>(thread);
  const size_t begin = granules * index / count * granule_;
  const size_t end = std::min(n_, granules * (index + 1) / count * granule_);
  if (begin >= end) return;
  Span& span = spans_[index];
  span.begin = Clock::now();
  (*body_)(begin, end - begin);
  span.end = Clock::now();
}

}  // namespace telegrad::perf
