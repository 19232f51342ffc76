#include "compression/sparse/select.h"

#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/prefetch.h"

namespace telegrad {
namespace {

// Magnitudes that have the bits [from, from + 2^shift), of a histogram over all
// that occur.
struct Bin {
  uint32_t from = 0;
  int shift = 0;
  size_t count = 0;  // how many values are in it
  // The place of the value that is looked for among the bin's; 1: largest.
  size_t rank = 0;
};

// The bin of the k-th largest of values [n], 1 <= k <= n.
Bin BinOfKth(const float* values, size_t n, size_t k) {
  constexpr int kBinBits = 12;
  auto least = static_cast<int32_t>(MagnitudeBits(values[0]));
  int32_t most = least;
  for (size_t i = 1; i < n; ++i) {
    const auto bits = static_cast<int32_t>(MagnitudeBits(values[i]));
    least = std::min(least, bits);
    most = std::max(most, bits);
  }
  const auto base = static_cast<uint32_t>(least);
  const uint32_t range = static_cast<uint32_t>(most) - base;
  const int shift =
      std::max(0, static_cast<int>(std::bit_width(range)) - kBinBits);
  std::array<uint32_t, size_t{1} << kBinBits> counts{};
  for (size_t i = 0; i < n; ++i) {
    ++counts[(MagnitudeBits(values[i]) - base) >> shift];
  }
  uint32_t bin = range >> shift;
  for (; counts[bin] < k; --bin) k -= counts[bin];
  return {.from = base + (bin << shift),
          .shift = shift,
          .count = counts[bin],
          .rank = k};
}

// The bits of all values in a bin.
std::vector<uint32_t> BitsIn(const Bin& bin, const float* values, size_t n) {
  std::vector<uint32_t> found(bin.count + 1);  // one to write behind the last
  size_t size = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = MagnitudeBits(values[i]);
    found[size] = bits;
    size += (bits - bin.from) >> bin.shift == 0 ? 1 : 0;
  }
  found.resize(bin.count);
  return found;
}

struct Kth {
  uint32_t bits = 0;
  size_t num_equal = 0;  // how many of the k largest have these bits
};

Kth KthLargest(const float* values, size_t n, size_t k) {
  const Bin bin = BinOfKth(values, n, k);
  if (bin.shift == 0) return {.bits = bin.from, .num_equal = bin.rank};
  std::vector<uint32_t> found = BitsIn(bin, values, n);
  const auto kth = found.begin() + static_cast<ptrdiff_t>(bin.rank - 1);
  std::nth_element(found.begin(), kth, found.end(), std::greater<>());
  const auto num_larger = static_cast<size_t>(
      std::count_if(found.begin(), kth,
                    [least = *kth](uint32_t bits) { return bits > least; }));
  return {.bits = *kth, .num_equal = bin.rank - num_larger};
}

}  // namespace

float ThresholdOf(const float* sample, size_t size, size_t n, size_t wanted,
                  bool generous) {
  if (size == 0) return FLT_TRUE_MIN;
  const size_t k = kernels::SampleRank(size, n, wanted, generous);
  // A bin is far smaller than what the sample is off by.
  const uint32_t least = BinOfKth(sample, size, k).from;
  return std::bit_cast<float>(std::max<uint32_t>(least, 1));
}

size_t KeepLargest(size_t k, size_t count, uint32_t* indices, float* values,
                   const float* from) {
  if (count <= k) return count;
  Kth kth = KthLargest(values, count, k);
  size_t kept = 0;
  // Without branches: which are kept cannot be predicted.
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = MagnitudeBits(values[i]);
    const size_t takes_equal =
        (bits == kth.bits) & (kth.num_equal != 0) ? 1 : 0;
    indices[kept] = indices[i];
    values[kept] = values[i];
    kept += takes_equal + (bits > kth.bits ? 1 : 0);
    kth.num_equal -= takes_equal;
    kernels::PrefetchForWrite(from + indices[kept == 0 ? 0 : kept - 1]);
  }
  return kept;
}

void ClearListed(const uint32_t* indices, size_t count, float* array) {
  constexpr size_t kAhead = 16;
  for (size_t i = 0; i < count; ++i) {
    const size_t next = std::min(i + kAhead, count - 1);
    kernels::PrefetchForWrite(array + indices[next]);
    array[indices[i]] = 0;
  }
}

size_t FindLargest(const float* from, size_t n, size_t k, uint32_t* indices,
                   float* values) {
  const uint32_t least =
      std::max<uint32_t>(KthLargest(from, n, std::min(k, n)).bits, 1);
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if (MagnitudeBits(from[i]) < least) continue;
    indices[count] = static_cast<uint32_t>(i);
    values[count++] = from[i];
  }
  return KeepLargest(k, count, indices, values, from);
}

}  // namespace telegrad
