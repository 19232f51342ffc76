#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace telegrad::ucx {

// Records that are used again and again: after a while nothing is allocated.
// Get gives a record as it was put back. One thread.
template <typename T>
class Pool {
 public:
  T* Get() {
    if (free_.empty()) return &all_.emplace_back();
    T* record = free_.back();
    free_.pop_back();
    return record;
  }
  void Put(T* record) { free_.push_back(record); }

 private:
  std::deque<T> all_;  // records never move
  std::vector<T*> free_;
};

}  // namespace telegrad::ucx
