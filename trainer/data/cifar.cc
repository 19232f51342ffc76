#include "trainer/data/cifar.h"

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "trainer/data/inflate.h"
#include "trainer/data/sampling.h"

namespace telegrad {
namespace {

constexpr size_t kPixels = size_t{3} * 32 * 32;
// Ten times what the files of these data sets have.
constexpr size_t kMostRecords = 500'000;

struct CifarKind {
  const char* name;
  size_t label_bytes;  // bytes of a record's labels; the last one counts
  int num_classes;
};

absl::Status ReadRecords(const CifarKind& kind, const std::string& path,
                         Dataset& dataset) {
  ASSIGN_OR_RETURN(const std::unique_ptr<InflateReader> reader,
                   InflateReader::Open(path));
  std::vector<uint8_t> record(kind.label_bytes + kPixels);
  const auto wrong = [&](uint64_t offset, const auto&... what) {
    return absl::DataLossError(
        absl::StrCat(path, ": byte ", offset, ": ", what...));
  };
  for (size_t i = 0;; ++i) {
    const uint64_t at = uint64_t{i} * record.size();
    ASSIGN_OR_RETURN(const size_t got,
                     reader->Read(record.data(), record.size()));
    if (got == 0 && i > 0) return absl::OkStatus();
    if (got < record.size()) {
      return wrong(at + got, "the file ends inside record ", i, " of ",
                   record.size(), " bytes");
    }
    if (i == kMostRecords) {
      return wrong(at, "more than ", kMostRecords, " records");
    }
    const uint8_t label = record[kind.label_bytes - 1];
    if (label >= kind.num_classes) {
      return wrong(at + kind.label_bytes - 1, "label ", int{label},
                   ", the largest is ", kind.num_classes - 1);
    }
    dataset.labels.push_back(label);
    dataset.pixels.insert(
        dataset.pixels.end(),
        record.begin() + static_cast<ptrdiff_t>(kind.label_bytes),
        record.end());
  }
}

absl::StatusOr<Dataset> ReadFiles(const CifarKind& kind,
                                  const std::string& directory,
                                  std::initializer_list<const char*> files) {
  Dataset dataset;
  dataset.name = kind.name;
  dataset.channels = 3;
  dataset.rows = dataset.cols = 32;
  dataset.num_classes = kind.num_classes;
  for (const char* file : files) {
    ASSIGN_OR_RETURN(const std::string path,
                     FindDataFile({absl::StrCat(directory, "/", file)}));
    RETURN_IF_ERROR(ReadRecords(kind, path, dataset));
  }
  return dataset;
}

DatasetPair Measured(Dataset train, Dataset test) {
  MeasurePixels(train);
  test.mean = train.mean;
  test.stddev = train.stddev;
  return {.train = std::move(train), .test = std::move(test)};
}

}  // namespace

absl::StatusOr<DatasetPair> ReadCifar10(const std::string& directory) {
  constexpr CifarKind kKind = {"cifar10", 1, 10};
  ASSIGN_OR_RETURN(
      Dataset train,
      ReadFiles(kKind, directory,
                {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                 "data_batch_4.bin", "data_batch_5.bin"}));
  ASSIGN_OR_RETURN(Dataset test,
                   ReadFiles(kKind, directory, {"test_batch.bin"}));
  return Measured(std::move(train), std::move(test));
}

absl::StatusOr<DatasetPair> ReadCifar100(const std::string& directory) {
  constexpr CifarKind kKind = {"cifar100", 2, 100};
  ASSIGN_OR_RETURN(Dataset train, ReadFiles(kKind, directory, {"train.bin"}));
  ASSIGN_OR_RETURN(Dataset test, ReadFiles(kKind, directory, {"test.bin"}));
  return Measured(std::move(train), std::move(test));
}

}  // namespace telegrad
