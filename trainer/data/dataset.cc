#include "trainer/data/dataset.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "trainer/data/cifar.h"
#include "trainer/data/digits.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/mnist.h"
#include "trainer/data/text.h"

namespace telegrad {

namespace {

struct DatasetLine {
  const char* name;  // "NAME:" where `argument` is wanted
  const char* argument;
  absl::StatusOr<DatasetPair> (*load)(const std::string& argument,
                                      const DatasetRequest& request);
  const char* description;
};

constexpr DatasetLine kDatasets[] = {
    {"digits", "",
     [](const std::string&, const DatasetRequest&)
         -> absl::StatusOr<DatasetPair> { return MakeDigits(); },
     "generated digits, 28 x 28, 20,000 to train and 4,000 to test"},
    {"digits:rgb32", "",
     [](const std::string&, const DatasetRequest&)
         -> absl::StatusOr<DatasetPair> { return MakeColourDigits(); },
     "the same in three channels of 32 x 32, on backgrounds"},
    {"mnist:", "DIR",
     [](const std::string& directory, const DatasetRequest&) {
       return ReadMnist(directory);
     },
     "the four IDX files of MNIST in DIR, plain or .gz"},
    {"cifar10:", "DIR",
     [](const std::string& directory, const DatasetRequest&) {
       return ReadCifar10(directory);
     },
     "data_batch_1.bin to 5 and test_batch.bin in DIR"},
    {"cifar100:", "DIR",
     [](const std::string& directory, const DatasetRequest&) {
       return ReadCifar100(directory);
     },
     "train.bin and test.bin in DIR"},
    {"imagefolder:", "DIR",
     [](const std::string& directory, const DatasetRequest& request) {
       return OpenImageFolder(directory, request.images);
     },
     "JPEG and PNG in DIR/train/CLASS and DIR/val/CLASS"},
    {"text", "",
     [](const std::string&,
        const DatasetRequest& request) -> absl::StatusOr<DatasetPair> {
       return MakeLanguage(request.context);
     },
     "a generated language, of 1.2130 nats a byte"},
    {"text:", "FILE",
     [](const std::string& path, const DatasetRequest& request) {
       return ReadText(path, request.context);
     },
     "the bytes of FILE, the last tenth to test"},
};

struct Kept {
  std::string spec;
  DatasetRequest request;
  DatasetPair data;
};
std::optional<Kept>& KeptDataset() {
  static auto* const kept = new std::optional<Kept>;
  return *kept;
}

absl::StatusOr<DatasetPair> Load(absl::string_view spec,
                                 const DatasetRequest& request) {
  std::vector<std::string> names;
  for (const DatasetLine& line : kDatasets) {
    names.push_back(absl::StrCat(line.name, line.argument));
    if (spec == line.name && line.argument[0] == '\0') {
      return line.load("", request);
    }
  }
  for (const DatasetLine& line : kDatasets) {
    absl::string_view argument = spec;
    if (line.argument[0] == '\0' ||
        !absl::ConsumePrefix(&argument, line.name)) {
      continue;
    }
    if (!argument.empty()) return line.load(std::string(argument), request);
    return absl::InvalidArgumentError(absl::StrCat(
        "'", spec, "' names nothing; write ", line.name, line.argument));
  }
  return absl::NotFoundError(absl::StrCat(
      "no data set '", spec, "'; there are ", absl::StrJoin(names, ", ")));
}

}  // namespace

absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec,
                                        const DatasetRequest& request) {
  std::optional<Kept>& kept = KeptDataset();
  const bool is_kept =
      kept.has_value() && kept->spec == spec && kept->request == request;
  if (!is_kept) return Load(spec, request);
  DatasetPair data = std::move(kept->data);
  kept.reset();
  return data;
}

absl::Status KeepDataset(absl::string_view spec,
                         const DatasetRequest& request) {
  ASSIGN_OR_RETURN(DatasetPair data, LoadDataset(spec, request));
  KeptDataset() = {std::string(spec), request, std::move(data)};
  return absl::OkStatus();
}

absl::StatusOr<DatasetShape> FindDataset(absl::string_view spec,
                                         const DatasetRequest& request) {
  if (spec == "digits") return DatasetShape{{}, kDigitsTrain};
  RETURN_IF_ERROR(KeepDataset(spec, request));
  const Dataset& train = KeptDataset()->data.train;
  return DatasetShape{train, train.size()};
}

Dataset MakeNoise(const SampleShape& shape, uint64_t seed, size_t num_samples) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  Dataset data;
  static_cast<SampleShape&>(data) = shape;
  data.name = "synthetic";
  const size_t pixels = shape.values_per_sample();
  if (shape.context > 0) {  // a label is the next byte
    num_samples = std::min(num_samples, kMostBytes / pixels);
    data.pixels.resize(num_samples * pixels + 1);
    Random random(seed, 77);
    for (uint8_t& byte : data.pixels) {
      byte = static_cast<uint8_t>(random.NextBelow(
          static_cast<uint64_t>(std::min(shape.num_classes, 256))));
    }
    return data;
  }
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
  std::string text;
  for (const DatasetLine& line : kDatasets) {
    absl::StrAppendFormat(&text, "  %-16s %s\n",
                          absl::StrCat(line.name, line.argument),
                          line.description);
  }
  return text;
}

}  // namespace telegrad
