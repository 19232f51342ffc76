#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/prefetch.h"

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
  static constexpr size_t kLine = 16;

  void ClearMore() {
    const size_t end = std::min(cleared_ + kStep, n_);
    // Plain memset reaches two thirds of the memory's rate for writes.
    for (; cleared_ + kLine <= end; cleared_ += kLine) {
      kernels::PrefetchForWrite(out_ + cleared_ + ahead_);
      std::memset(out_ + cleared_, 0, 4 * kLine);
    }
    std::memset(out_ + cleared_, 0, 4 * (end - cleared_));
    cleared_ = end;
  }

  float* const out_;
  const size_t n_;
  const size_t ahead_ = kernels::PrefetchBytes() / 4;  // past the end is fine
  size_t cleared_ = 0;
};

}  // namespace telegrad
