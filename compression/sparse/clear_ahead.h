#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace telegrad {

// Sets an array of n to 0 a few pages at a time, just before its elements are
// written in ascending order: they are in the cache then.
class ClearAhead {
 public:
  ClearAhead(float* out, size_t n) : out_(out), n_(n) {}

  // Clears so that element `index` < n is clear; it may be written from now on.
  void Until(size_t index) {
    while (index >= cleared_) ClearMore();
  }
  void All() {
    while (cleared_ < n_) ClearMore();
  }

 private:
  static constexpr size_t kStep = 4096;

  void ClearMore() {
    const size_t size = std::min(kStep, n_ - cleared_);
    std::memset(out_ + cleared_, 0, 4 * size);
    cleared_ += size;
  }

  float* const out_;
  const size_t n_;
  size_t cleared_ = 0;
};

}  // namespace telegrad
