#pragma once

#include <cstddef>
#include <map>
#include <unordered_map>
#include <vector>

#include "kernels/device_copy.h"

namespace telegrad::bounce {

// Pinned buffers that are used again, since to pin memory takes long. One
// thread. The copier frees them at its end, after the copies.
class PinnedPool {
 public:
  PinnedPool(kernels::DeviceCopier& copier, size_t keep_bytes)
      : copier_(copier), keep_bytes_(keep_bytes) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // At least `size` bytes; null where there is no memory.
  std::byte* Get(size_t size);
  // Buffers beyond `keep_bytes` in all are freed.
  void Put(std::byte* buffer);

 private:
  kernels::DeviceCopier& copier_;
  const size_t keep_bytes_;
  std::map<size_t, std::vector<std::byte*>> idle_;  // by size
  std::unordered_map<std::byte*, size_t> used_;
  size_t used_bytes_ = 0;
  size_t idle_bytes_ = 0;
};

}  // namespace telegrad::bounce
