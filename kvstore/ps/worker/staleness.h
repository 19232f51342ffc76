#pragma once

#include <atomic>
#include <cstdint>

namespace telegrad {

// How far ahead of the slowest a worker was, or how late. One thread adds, any
// may ask.
class Staleness {
 public:
  void Add(int64_t steps) {
    if (steps > most_) most_ = steps;
    sum_ += steps;
    num_late_ += steps > 0 ? 1 : 0;
    ++count_;
  }
  int64_t most() const { return most_; }
  int64_t num_late() const { return num_late_; }
  double mean() const {
    const int64_t count = count_;
    return count == 0 ? 0
                      : static_cast<double>(sum_) / static_cast<double>(count);
  }

 private:
  std::atomic<int64_t> most_{0};
  std::atomic<int64_t> sum_{0};
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> num_late_{0};
};

}  // namespace telegrad
