#include "base/bytes.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace telegrad {
namespace {

// Above this a buffer gets pages of its own: calloc's zeroing would touch them.
constexpr size_t kMapBytes = 256 * 1024;

}  // namespace

Buffer::Buffer(size_t size) : size_(size) {
  if (size == 0) return;
  if (size >= kMapBytes) {
    void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TELEGRAD_CHECK(pages != MAP_FAILED, "memory for a buffer is available");
    data_ = std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(pages),
                                             Free(size));
    return;
  }
  const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  void* block = std::aligned_alloc(kAlignment, rounded);
  TELEGRAD_CHECK(block != nullptr, "memory for a buffer is available");
  std::memset(block, 0, rounded);
  data_ =
      std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(block), Free());
}

void Buffer::Free::operator()(std::byte* pointer) const {
  if (mapped_bytes > 0) {
    munmap(pointer, mapped_bytes);
  } else {
    std::free(pointer);
  }
}

}  // namespace telegrad
