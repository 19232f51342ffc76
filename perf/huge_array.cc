#include "perf/huge_array.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace telegrad::perf {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

HugeArray::HugeArray(size_t num_bytes)
    : mapped_((num_bytes / kHugePage + 2) * kHugePage), size_(num_bytes) {
  pages_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TELEGRAD_CHECK(pages_ != MAP_FAILED, "memory for an array is available");
  const size_t past = reinterpret_cast<uintptr_t>(pages_) % kHugePage;
  data_ = static_cast<char*>(pages_) + (kHugePage - past) % kHugePage;
  // Advice only: where it is refused, pages are small.
  madvise(data_, (num_bytes + kHugePage - 1) / kHugePage * kHugePage,
          MADV_HUGEPAGE);
  std::memset(data_, 0, num_bytes);
}

HugeArray::~HugeArray() {
  if (pages_ != nullptr) munmap(pages_, mapped_);
}

}  // namespace telegrad::perf
