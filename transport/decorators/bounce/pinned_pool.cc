#include "transport/decorators/bounce/pinned_pool.h"

#include <algorithm>
#include <bit>

namespace telegrad::bounce {
namespace {

constexpr size_t kSmallest = size_t{4} << 10;

}  // namespace

std::byte* PinnedPool::Get(size_t size) {
  const size_t rounded = std::bit_ceil(std::max(size, kSmallest));
  std::vector<std::byte*>& idle = idle_[rounded];
  std::byte* buffer = nullptr;
  if (idle.empty()) {
    buffer = copier_.AllocateHost(rounded);
    if (buffer == nullptr) return nullptr;
  } else {
    buffer = idle.back();
    idle.pop_back();
    idle_bytes_ -= rounded;
  }
  used_[buffer] = rounded;
  used_bytes_ += rounded;
  return buffer;
}

void PinnedPool::Put(std::byte* buffer) {
  const auto node = used_.extract(buffer);
  if (node.empty()) return;
  const size_t size = node.mapped();
  used_bytes_ -= size;
  if (used_bytes_ + idle_bytes_ + size > keep_bytes_) {
    copier_.FreeHost(buffer);
    return;
  }
  idle_[size].push_back(buffer);
  idle_bytes_ += size;
}

}  // namespace telegrad::bounce
