#include "kvstore/tuning/turns.h"

#include <algorithm>
#include <numeric>

namespace telegrad {

std::vector<int64_t> TurnsOf(std::span<const uint64_t> sizes, int64_t num_steps,
                             int64_t num_fragments) {
  const uint64_t total =
      std::max<uint64_t>(1, std::reduce(sizes.begin(), sizes.end()));
  const auto count = static_cast<uint64_t>(num_fragments);
  std::vector<int64_t> turns;
  uint64_t before = 0;
  for (const uint64_t size : sizes) {
    const uint64_t middle = before + std::min(size, total / count) / 2;
    const uint64_t fragment = std::min(middle * count / total, count - 1);
    turns.push_back(static_cast<int64_t>(fragment) * num_steps / num_fragments);
    before += size;
  }
  return turns;
}

}  // namespace telegrad
