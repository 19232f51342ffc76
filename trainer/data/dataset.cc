#include "trainer/dataset.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

absl::StatusOr<size_t> CountTrainingSamples(absl::string_view spec) {
  if (spec == "digits") return kDigitsTrain;
  ASSIGN_OR_RETURN(const DatasetPair data, LoadDataset(spec));
  return data.train.size();
}

std::string DescribeDatasets() {
  return "  digits     generated digits, 28 x 28, 20,000 to train and 4,000 to "
         "test\n"
         "  mnist:DIR  the four IDX files of MNIST in DIR, plain or .gz\n";
}

}  // namespace telegrad
