#include "trainer/data/mnist.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "trainer/data/idx.h"
#include "trainer/data/inflate.h"
#include "trainer/data/sampling.h"

namespace telegrad {
namespace {

constexpr int kNumClasses = 10;
constexpr uint32_t kMostSide = 4096;  // an image's, as networks accept it

absl::Status CheckLabels(const std::string& path, const IdxFile& file) {
  for (size_t i = 0; i < file.values.size(); ++i) {
    if (file.values[i] >= kNumClasses) {
      return absl::DataLossError(absl::StrCat(
          path, ": byte ", IdxHeaderBytes(1) + i, ": label ",
          int{file.values[i]}, ", the largest is ", kNumClasses - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckImages(const std::string& path, const IdxFile& file,
                         uint32_t num_labels, const std::string& labels_path) {
  if (file.extents[0] != num_labels) {
    return absl::DataLossError(
        absl::StrCat(path, ": byte 4: ", file.extents[0], " images, but ",
                     labels_path, " has ", num_labels, " labels (byte 4)"));
  }
  for (size_t dim : {size_t{1}, size_t{2}}) {
    if (file.extents[dim] > kMostSide) {
      return absl::DataLossError(absl::StrCat(path, ": byte ", 4 + 4 * dim,
                                              ": images of ", file.extents[dim],
                                              " pixels a side"));
    }
  }
  return absl::OkStatus();
}

struct NamedDataset {
  Dataset dataset;
  std::string images_path;
};

absl::StatusOr<NamedDataset> ReadPart(const std::string& directory,
                                      const std::string& part) {
  ASSIGN_OR_RETURN(
      std::string images_path,
      FindDataFile({absl::StrCat(directory, "/", part, "-images-idx3-ubyte"),
                    absl::StrCat(directory, "/", part, "-images.idx3-ubyte")}));
  ASSIGN_OR_RETURN(
      const std::string labels_path,
      FindDataFile({absl::StrCat(directory, "/", part, "-labels-idx1-ubyte"),
                    absl::StrCat(directory, "/", part, "-labels.idx1-ubyte")}));
  ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(labels_path, 1));
  RETURN_IF_ERROR(CheckLabels(labels_path, labels));
  ASSIGN_OR_RETURN(IdxFile images, ReadIdx(images_path, 3));
  RETURN_IF_ERROR(
      CheckImages(images_path, images, labels.extents[0], labels_path));
  NamedDataset result;
  result.dataset.name = "mnist";
  result.dataset.rows = static_cast<int>(images.extents[1]);
  result.dataset.cols = static_cast<int>(images.extents[2]);
  result.dataset.num_classes = kNumClasses;
  result.dataset.pixels = std::move(images.values);
  result.dataset.labels.assign(labels.values.begin(), labels.values.end());
  result.images_path = std::move(images_path);
  return result;
}

}  // namespace

absl::StatusOr<DatasetPair> ReadMnist(const std::string& directory) {
  ASSIGN_OR_RETURN(NamedDataset train, ReadPart(directory, "train"));
  ASSIGN_OR_RETURN(NamedDataset test, ReadPart(directory, "t10k"));
  if (train.dataset.rows != test.dataset.rows ||
      train.dataset.cols != test.dataset.cols) {
    return absl::DataLossError(absl::StrCat(
        test.images_path, ": byte 8: images of ", test.dataset.rows, " x ",
        test.dataset.cols, ", but ", train.images_path, " has ",
        train.dataset.rows, " x ", train.dataset.cols));
  }
  MeasurePixels(train.dataset);
  test.dataset.mean = train.dataset.mean;
  test.dataset.stddev = train.dataset.stddev;
  return DatasetPair{.train = std::move(train.dataset),
                     .test = std::move(test.dataset)};
}

}  // namespace telegrad
