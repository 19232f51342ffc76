#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// What a network is given and asked for.
struct SampleShape {
  int channels = 1;
  int rows = 28;
  int cols = 28;
  int context = 0;  // > 0: text of so many bytes in place of images
  int num_classes = 10;

  // In memory and as input.
  size_t values_per_sample() const {
    if (context > 0) return static_cast<size_t>(context);
    return static_cast<size_t>(channels) * static_cast<size_t>(rows) *
           static_cast<size_t>(cols);
  }
  size_t labels_per_sample() const {
    return context > 0 ? static_cast<size_t>(context) : 1;
  }
  bool operator==(const SampleShape&) const = default;
};

// Labelled images of one shape, 8 bits per pixel, or a text.
struct Dataset : SampleShape {
  std::string name;
  // [num_images, channels, rows, cols]. Where there are fewer images than
  // labels, they come again. Of a text, its bytes: sample i begins at byte
  // i * context, and the labels are the bytes that follow.
  std::vector<uint8_t> pixels;
  std::vector<uint16_t> labels;
  // Reads sample `index` into [channels, rows, cols], in place of `pixels`.
  // From any thread.
  std::function<absl::Status(size_t index, uint8_t* pixels)> read = nullptr;
  // Statistics of pixels / 255, by channel, for normalising.
  std::vector<float> mean;
  std::vector<float> stddev;

  size_t size() const {
    if (context == 0) return labels.size();
    return pixels.empty() ? 0 : (pixels.size() - 1) / values_per_sample();
  }
};

// What is drawn for each image of an epoch: a function of seed, epoch and
// sample alone.
struct Augmentation {
  int pad = 0;              // cut out of an image with so many pixels around it
  bool has_mirror = false;  // half of the images, left to right
  uint64_t seed = 0;
  int epoch = 0;
};

struct DatasetPair {
  Dataset train = {};
  Dataset test = {};
};

// A line of DescribeDatasets. NotFound names the choices, or the file that is
// not there; InvalidArgument and DataLoss name file and byte offset.
struct DatasetRequest {
  int context = 128;  // a text's
  // Images from a folder.
  SampleShape images = {.channels = 3, .rows = 224, .cols = 224};

  bool operator==(const DatasetRequest&) const = default;
};
absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec,
                                        const DatasetRequest& request = {});

// Loads it for the next LoadDataset of the same, here and in forks of this
// process; in place of what was kept before. Its errors.
absl::Status KeepDataset(absl::string_view spec,
                         const DatasetRequest& request = {});

// The shape of LoadDataset's first set, and how many samples it has. Generates
// nothing, and keeps what it had to load. Its errors.
struct DatasetShape : SampleShape {
  size_t num_training = 0;
};
absl::StatusOr<DatasetShape> FindDataset(absl::string_view spec,
                                         const DatasetRequest& request = {});

// Noise of the right shape, at most 64 MiB of it; what is learnt does not
// matter.
Dataset MakeNoise(const SampleShape& shape, uint64_t seed, size_t num_samples);

// The lines of --help: one per kind of data.
std::string DescribeDatasets();

// Which samples worker `rank` of `num_workers` sees in `epoch`, in order: a
// permutation of all that depends on (seed, epoch) only, cut into equal
// contiguous shares, each a multiple of batch_size (the rest is left out). All
// workers get the same number of batches.
std::vector<uint32_t> EpochShare(size_t dataset_size, uint64_t seed, int epoch,
                                 int rank, int num_workers, int64_t batch_size);

// The chosen samples, drawn and normalised: values [n, c, r, c] f32 and labels
// [n]; of a text, bytes and the bytes that follow, both [n, context]. An error
// is that of a sample that cannot be read.
absl::Status GatherBatch(const Dataset& dataset,
                         const Augmentation& augmentation,
                         std::span<const uint32_t> indices, float* values,
                         int64_t* labels);

}  // namespace telegrad
