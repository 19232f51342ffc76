#pragma once

#include <cstdint>
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

// Labelled images of one shape, 8 bits per pixel.
struct Dataset : SampleShape {
  std::string name;
  // [num_images, channels, rows, cols]. Where there are fewer images than
  // labels, they come again.
  std::vector<uint8_t> pixels;
  std::vector<uint16_t> labels;
  // Of pixels / 255, by channel, for normalising.
  std::vector<float> mean;
  std::vector<float> stddev;

  size_t size() const { return labels.size(); }
};

struct DatasetPair {
  Dataset train;
  Dataset test;
};

// "digits": generated, the same for everyone on every machine; "mnist:DIR":
// IDX files, plain or gzip. NotFound names the choices; InvalidArgument and
// DataLoss name file and byte offset.
absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec);

// Of LoadDataset's first set, and how many samples it has; generates nothing.
// Its errors.
struct DatasetShape : SampleShape {
  size_t num_training = 0;
};
absl::StatusOr<DatasetShape> FindDataset(absl::string_view spec);

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
                                 int rank, int num_workers, int batch_size);

// Copies the chosen samples, normalised, into out [indices, c, r, c] f32.
void GatherBatch(const Dataset& dataset, const uint32_t* indices, size_t count,
                 float* images, int64_t* labels);

}  // namespace telegrad
