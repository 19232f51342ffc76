#include "perf/huge_array.h"

#include <algorithm>
#include <cstring>

namespace telegrad::perf {
namespace {

// Smaller buffers have no huge page.
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

HugeArray::HugeArray(size_t num_bytes)
    : pages_(std::max(num_bytes, kHugePage)), size_(num_bytes) {
  std::memset(pages_.data(), 0, pages_.size());
}

}  // namespace telegrad::perf
