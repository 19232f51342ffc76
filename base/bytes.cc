#include "base/bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace telegrad {
namespace {

// Above this a buffer gets pages of its own: calloc's zeroing would touch them.
constexpr size_t kMapBytes = 256 * 1024;
// From here on in huge pages where the system has them: with 4 KiB pages a
// codec waits for page tables, too.
constexpr size_t kHugePage = size_t{2} << 20;
// Beyond it rounding up would overflow; no machine has as much.
constexpr size_t kMaxSize = size_t{1} << 62;

// Fresh, zero-filled pages; null if there are none.
void* MapPages(size_t size) {
  const size_t slack = size >= kHugePage ? kHugePage : 0;
  void* const pages = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  if (slack == 0) return pages;
  auto* const first = static_cast<std::byte*>(pages);
  const size_t past = reinterpret_cast<uintptr_t>(first) % kHugePage;
  const size_t before = (kHugePage - past) % kHugePage;
  if (before > 0) munmap(first, before);
  std::byte* const aligned = first + before;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = (size + page - 1) / page * page;
  if (slack - before > used - size) {
    munmap(aligned + used, size + slack - before - used);
  }
  madvise(aligned, size, MADV_HUGEPAGE);  // where it is refused, they are small
  return aligned;
}

}  // namespace

absl::StatusOr<Buffer> Buffer::Create(size_t size) {
  Buffer buffer;
  if (size == 0) return buffer;
  void* memory = nullptr;
  if (size >= kMapBytes && size <= kMaxSize) {
    memory = MapPages(size);
    buffer.data_ = Memory(static_cast<std::byte*>(memory), Free(size));
  } else if (size < kMapBytes) {
    const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
    memory = std::aligned_alloc(kAlignment, rounded);
    if (memory != nullptr) std::memset(memory, 0, rounded);
    buffer.data_ = Memory(static_cast<std::byte*>(memory), Free());
  }
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", size, " bytes"));
  }
  buffer.size_ = size;
  return buffer;
}

Buffer::Buffer(size_t size) {
  absl::StatusOr<Buffer> made = Create(size);
  if (!made.ok()) OutOfMemory(size);
  *this = *std::move(made);
}

Buffer::Buffer(std::byte* memory, size_t size, Device device,
               void (*give_back)(std::byte*))
    : data_(memory, Free(give_back)), size_(size), device_(device) {}

void Buffer::Free::operator()(std::byte* pointer) const {
  if (give_back != nullptr) {
    give_back(pointer);
  } else if (mapped_bytes > 0) {
    munmap(pointer, mapped_bytes);
  } else {
    std::free(pointer);
  }
}

}  // namespace telegrad
