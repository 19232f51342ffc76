#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// Labelled images of one shape, 8 bits per pixel.
struct Dataset {
  std::string name;
  int channels = 1;
  int rows = 28;
  int cols = 28;
  int num_classes = 10;
  std::vector<uint8_t> pixels;  // [size, channels, rows, cols]
  std::vector<uint8_t> labels;  // [size]
  float mean = 0.0f;            // of pixels / 255, for normalising
  float stddev = 1.0f;

  size_t size() const { return labels.size(); }
  size_t pixels_per_image() const {
    return static_cast<size_t>(channels) * static_cast<size_t>(rows) *
           static_cast<size_t>(cols);
  }
};

struct DatasetPair {
  Dataset train;
  Dataset test;
};

// "digits": generated, the same for everyone on every machine; "mnist:DIR":
// IDX files, plain or gzip. NotFound names the choices; InvalidArgument and
// DataLoss name file and byte offset.
absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec);

// How many samples LoadDataset's first set has; generates nothing. Its errors.
absl::StatusOr<size_t> CountTrainingSamples(absl::string_view spec);

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
