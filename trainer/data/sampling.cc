#include "trainer/data/sampling.h"

#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

// Keeps the order of samples apart from what else is drawn from a seed.
constexpr uint64_t kOrderStream = uint64_t{0x6f726465} << 32;  // "orde"
// And what is drawn for images. Its top bit is not that of the one above.
constexpr uint64_t kDrawStream = uint64_t{0xe4726177} << 32;

using Levels = std::array<float, 256>;  // a channel's values, normalised

std::vector<Levels> LevelsOf(const Dataset& dataset) {
  std::vector<Levels> levels(static_cast<size_t>(dataset.channels));
  for (size_t channel = 0; channel < levels.size(); ++channel) {
    for (size_t value = 0; value < 256; ++value) {
      levels[channel][value] =
          (static_cast<float>(value) / 255.0f - dataset.mean[channel]) /
          dataset.stddev[channel];
    }
  }
  return levels;
}

// Where an image is cut out, and whether it is mirrored.
struct Drawn {
  int row = 0;
  int col = 0;
  bool is_mirrored = false;
};

Drawn DrawnFor(const Augmentation& augmentation, uint32_t index) {
  Drawn drawn;
  if (augmentation.pad == 0 && !augmentation.has_mirror) return drawn;
  Random random(
      augmentation.seed,
      kDrawStream ^
          (uint64_t{static_cast<uint32_t>(augmentation.epoch)} << 32 | index));
  if (augmentation.pad > 0) {
    const auto places = static_cast<uint64_t>(2 * augmentation.pad + 1);
    drawn.row = static_cast<int>(random.NextBelow(places)) - augmentation.pad;
    drawn.col = static_cast<int>(random.NextBelow(places)) - augmentation.pad;
  }
  drawn.is_mirrored = augmentation.has_mirror && (random.NextU32() >> 31) != 0;
  return drawn;
}

// What lies beyond the edge is black, normalised as all of it.
void Place(const SampleShape& shape, const std::vector<Levels>& levels,
           const uint8_t* from, const Drawn& drawn, float* to) {
  const int rows = shape.rows;
  const int cols = shape.cols;
  for (const Levels& level : levels) {
    for (int row = 0; row < rows; ++row) {
      const int source_row = row + drawn.row;
      const bool has_row = source_row >= 0 && source_row < rows;
      for (int col = 0; col < cols; ++col) {
        const int wanted = drawn.is_mirrored ? cols - 1 - col : col;
        const int source_col = wanted + drawn.col;
        const bool is_inside = has_row && source_col >= 0 && source_col < cols;
        *to++ = level[is_inside ? from[source_row * cols + source_col] : 0];
      }
    }
    from += static_cast<ptrdiff_t>(rows) * cols;
  }
}

void GatherText(const Dataset& text, std::span<const uint32_t> indices,
                float* values, int64_t* labels) {
  const size_t length = text.values_per_sample();
  for (const uint32_t index : indices) {
    const uint8_t* const from = text.pixels.data() + index * length;
    for (size_t i = 0; i < length; ++i) {
      *values++ = static_cast<float>(from[i]);
      *labels++ = from[i + 1];
    }
  }
}

}  // namespace

void MeasurePixels(Dataset& dataset) {
  const size_t plane =
      static_cast<size_t>(dataset.rows) * static_cast<size_t>(dataset.cols);
  const auto channels = static_cast<size_t>(dataset.channels);
  std::vector<std::array<uint64_t, 256>> counts(channels);
  for (size_t begin = 0; begin < dataset.pixels.size(); begin += plane) {
    std::array<uint64_t, 256>& count = counts[begin / plane % channels];
    for (size_t i = begin; i < begin + plane; ++i) ++count[dataset.pixels[i]];
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
                                 int rank, int num_workers,
                                 int64_t batch_size) {
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

absl::Status GatherBatch(const Dataset& dataset,
                         const Augmentation& augmentation,
                         std::span<const uint32_t> indices, float* values,
                         int64_t* labels) {
  for (const uint32_t index : indices) {
    TELEGRAD_CHECK(index < dataset.size(), "samples exist");
  }
  if (dataset.context > 0) {
    GatherText(dataset, indices, values, labels);
    return absl::OkStatus();
  }
  const std::vector<Levels> levels = LevelsOf(dataset);
  const size_t pixels = dataset.values_per_sample();
  std::vector<uint8_t> scratch(dataset.read ? pixels : 0);
  for (size_t i = 0; i < indices.size(); ++i) {
    const uint8_t* from = scratch.data();
    if (dataset.read) {
      RETURN_IF_ERROR(dataset.read(indices[i], scratch.data()));
    } else {
      const size_t num_images = dataset.pixels.size() / pixels;
      from = dataset.pixels.data() + indices[i] % num_images * pixels;
    }
    Place(dataset, levels, from, DrawnFor(augmentation, indices[i]),
          values + i * pixels);
    labels[i] = dataset.labels[indices[i]];
  }
  return absl::OkStatus();
}

}  // namespace telegrad
