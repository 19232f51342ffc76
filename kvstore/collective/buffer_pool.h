#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace telegrad::collective {

// Buffers of a power of two bytes, given again last first, so that they are
// still in cache. One thread.
class BufferPool {
 public:
  // At least `size` bytes.
  Buffer Get(size_t size) {
    std::vector<Buffer>& free = free_[ClassOf(size)];
    if (free.empty()) return Buffer(size_t{1} << ClassOf(size));
    Buffer buffer = std::move(free.back());
    free.pop_back();
    return buffer;
  }
  void Put(Buffer buffer) {
    std::vector<Buffer>& free = free_[ClassOf(buffer.size())];
    if (buffer.size() > 0 && free.size() < kMaxFree) {
      free.push_back(std::move(buffer));
    }
  }

 private:
  static constexpr size_t kMaxFree = 64;  // free buffers kept per size
  static constexpr size_t kMinClass = 6;
  static size_t ClassOf(size_t size) {
    return std::max<size_t>(
        kMinClass,
        static_cast<size_t>(std::bit_width(size == 0 ? 0 : size - 1)));
  }
  std::array<std::vector<Buffer>, 64> free_;
};

}  // namespace telegrad::collective
