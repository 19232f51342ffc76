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
  const size_t plane =
      static_cast<size_t>(dataset.rows) * static_cast<size_t>(dataset.cols);
  const auto channels = static_cast<size_t>(dataset.channels);
  std::vector<std::array<uint64_t, 256>> counts(channels);
  for (size_t i = 0; i < dataset.pixels.size(); ++i) {
    ++counts[i / plane % channels][dataset.pixels[i]];
  }
  dataset.mean.assign(channels, 0.0f);
  dataset.stddev.assign(channels, 1.0f);
  const auto total = static_cast<double>(dataset.pixels.size()) /
                     static_cast<double>(channels);
  if (dataset.pixels.empty()) return;
  for (size_t channel = 0; channel < channels; ++channel) {
    double sum = 0;
    double squares = 0;
    for (size_t value = 0; value < 256; ++value) {
      const double level = static_cast<double>(value) / 255;
      const auto count = static_cast<double>(counts[channel][value]);
      sum += level * count;
      squares += level * level * count;
    }
    const double mean = sum / total;
    const double variance = squares / total - mean * mean;
    dataset.mean[channel] = static_cast<float>(mean);
    // All pixels equal: leave them at zero rather than divide by it.
    if (variance > 1e-9) {
      dataset.stddev[channel] = static_cast<float>(std::sqrt(variance));
    }
  }
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
  const auto channels = static_cast<size_t>(dataset.channels);
  std::vector<std::array<float, 256>> levels(channels);
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t value = 0; value < 256; ++value) {
      levels[channel][value] =
          (static_cast<float>(value) / 255.0f - dataset.mean[channel]) /
          dataset.stddev[channel];
    }
  }
  const size_t pixels = dataset.values_per_sample();
  const size_t plane = pixels / channels;
  const size_t num_images = dataset.pixels.size() / pixels;
  for (size_t i = 0; i < count; ++i) {
    TELEGRAD_CHECK(indices[i] < dataset.size(), "samples exist");
    const uint8_t* from =
        dataset.pixels.data() + indices[i] % num_images * pixels;
    float* const to = images + i * pixels;
    for (size_t channel = 0; channel < channels; ++channel) {
      const std::array<float, 256>& level = levels[channel];
      for (size_t p = channel * plane; p < (channel + 1) * plane; ++p) {
        to[p] = level[from[p]];
      }
    }
    labels[i] = dataset.labels[indices[i]];
  }
}

}  // namespace telegrad
