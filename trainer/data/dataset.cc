#include "trainer/dataset.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "trainer/data/digits.h"
#include "trainer/data/mnist.h"

namespace telegrad {

absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec) {
  if (spec == "digits") return MakeDigits();
  absl::string_view directory = spec;
  if (absl::ConsumePrefix(&directory, "mnist:")) {
    if (directory.empty()) {
      return absl::InvalidArgumentError(
          "'mnist:' names no directory; write mnist:DIR");
    }
    return ReadMnist(std::string(directory));
  }
  return absl::NotFoundError(
      absl::StrCat("no data set '", spec, "'; there are digits, mnist:DIR"));
}

absl::StatusOr<DatasetShape> FindDataset(absl::string_view spec) {
  if (spec == "digits") return DatasetShape{{}, kDigitsTrain};
  ASSIGN_OR_RETURN(const DatasetPair data, LoadDataset(spec));
  return DatasetShape{data.train, data.train.size()};
}

Dataset MakeNoise(const SampleShape& shape, uint64_t seed, size_t num_samples) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  Dataset data;
  static_cast<SampleShape&>(data) = shape;
  data.name = "synthetic";
  const size_t pixels = shape.values_per_sample();
  const size_t num_images =
      std::min(num_samples, std::max(size_t{1}, kMostBytes / pixels));
  data.pixels.resize(num_images * pixels);
  data.labels.resize(num_samples);
  data.mean.assign(static_cast<size_t>(shape.channels), 0.0f);
  data.stddev.assign(static_cast<size_t>(shape.channels), 1.0f);
  Random random(seed, 77);
  for (uint8_t& pixel : data.pixels) {
    pixel = static_cast<uint8_t>(random.NextU32());
  }
  for (uint16_t& label : data.labels) {
    label = static_cast<uint16_t>(
        random.NextBelow(static_cast<uint64_t>(shape.num_classes)));
  }
  return data;
}

std::string DescribeDatasets() {
  return "  digits     generated digits, 28 x 28, 20,000 to train and 4,000 to "
         "test\n"
         "  mnist:DIR  the four IDX files of MNIST in DIR, plain or .gz\n";
}

}  // namespace telegrad
