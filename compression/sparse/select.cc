#include "compression/sparse/select.h"

namespace telegrad {

size_t KeepLargest(size_t k, size_t count, uint32_t* indices, float* values) {
  if (count <= k) return count;
  const uint32_t least = KthLargest(
      count, k, [values](size_t i) { return MagnitudeBits(values[i]); });
  size_t num_larger = 0;
  for (size_t i = 0; i < count; ++i) {
    num_larger += MagnitudeBits(values[i]) > least ? 1 : 0;
  }
  size_t num_equal = k - num_larger;  // that are kept
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = MagnitudeBits(values[i]);
    if (bits < least || (bits == least && num_equal == 0)) continue;
    if (bits == least) --num_equal;
    indices[kept] = indices[i];
    values[kept++] = values[i];
  }
  return kept;
}

size_t FindLargest(const float* from, size_t n, size_t k, uint32_t* indices,
                   float* values) {
  const uint32_t least = std::max<uint32_t>(
      KthLargest(n, std::min(k, n),
                 [from](size_t i) { return MagnitudeBits(from[i]); }),
      1);
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if (MagnitudeBits(from[i]) < least) continue;
    indices[count] = static_cast<uint32_t>(i);
    values[count++] = from[i];
  }
  return KeepLargest(k, count, indices, values);
}

}  // namespace telegrad
