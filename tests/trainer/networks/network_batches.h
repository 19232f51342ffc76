#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "trainer/networks/network.h"

namespace telegrad {

inline constexpr int64_t kBatch = 8;

struct Batch {
  std::vector<float> images;
  std::vector<int64_t> labels;
};

inline Batch MakeBatch(const NetworkSpec& spec = {}, int64_t n = kBatch) {
  Batch batch;
  Random random(9);
  const int64_t predictions = n * std::max(spec.context, 1);
  const int64_t values = spec.context > 0
                             ? predictions
                             : n * spec.channels * spec.rows * spec.cols;
  for (int64_t i = 0; i < values; ++i) {
    batch.images.push_back(spec.context > 0
                               ? static_cast<float>(random.NextBelow(256))
                               : random.NextUniform(-1, 1));
  }
  for (int64_t i = 0; i < predictions; ++i) {
    batch.labels.push_back(static_cast<int64_t>(
        random.NextBelow(static_cast<uint64_t>(spec.num_classes))));
  }
  return batch;
}

}  // namespace telegrad
