#include "trainer/data/sampling.h"

#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace telegrad {
namespace {

// Keeps the order of samples apart from what else is drawn from a seed.
constexpr uint64_t kOrderStream = uint64_t{0x6f726465} << 32;  // "orde"

}  // namespace

void MeasurePixels(Dataset& dataset) {
  std::array<uint64_t, 256> counts{};
  for (uint8_t pixel : dataset.pixels) ++counts[pixel];
  double sum = 0;
  double squares = 0;
  for (size_t value = 0; value < counts.size(); ++value) {
    const double level = static_cast<double>(value) / 255;
    sum += level * static_cast<double>(counts[value]);
    squares += level * level * static_cast<double>(counts[value]);
  }
  if (dataset.pixels.empty()) return;
  const double mean = sum / static_cast<double>(dataset.pixels.size());
  const double variance =
      squares / static_cast<double>(dataset.pixels.size()) - mean * mean;
  dataset.mean = static_cast<float>(mean);
  // All pixels equal: leave them at zero rather than divide by it.
  dataset.stddev =
      variance > 1e-9 ? static_cast<float>(std::sqrt(variance)) : 1.0f;
}

std::vector<uint32_t> EpochShare(size_t dataset_size, uint64_t seed, int epoch,
                                 int rank, int num_workers, int batch_size) {
  if (rank < 0 || rank >= num_workers || batch_size < 1 ||
      dataset_size > UINT32_MAX) {
    return {};
  }
  std::vector<uint32_t> order(dataset_size);
  std::iota(order.begin(), order.end(), 0u);
  Random random(seed, kOrderStream | static_cast<uint32_t>(epoch));
  for (size_t i = dataset_size; i > 1; --i) {
    std::swap(order[i - 1], order[random.NextBelow(i)]);
  }
  const size_t batch = static_cast<size_t>(batch_size);
  const size_t share =
      dataset_size / static_cast<size_t>(num_workers) / batch * batch;
  const auto first =
      order.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank) * share);
  return {first, first + static_cast<ptrdiff_t>(share)};
}

void GatherBatch(const Dataset& dataset, const uint32_t* indices, size_t count,
                 float* images, int64_t* labels) {
  std::array<float, 256> levels;
  for (size_t value = 0; value < levels.size(); ++value) {
    levels[value] =
        (static_cast<float>(value) / 255.0f - dataset.mean) / dataset.stddev;
  }
  const size_t pixels = dataset.pixels_per_image();
  for (size_t i = 0; i < count; ++i) {
    TELEGRAD_CHECK(indices[i] < dataset.size(), "samples exist");
    const uint8_t* from = dataset.pixels.data() + indices[i] * pixels;
    for (size_t p = 0; p < pixels; ++p)
      images[i * pixels + p] = levels[from[p]];
    labels[i] = dataset.labels[indices[i]];
  }
}

}  // namespace telegrad
