#include "trainer/data/batch_reader.h"

#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

Dataset Numbered(size_t size) {
  Dataset dataset;
  dataset.rows = dataset.cols = 1;
  for (size_t i = 0; i < size; ++i) {
    dataset.pixels.push_back(static_cast<uint8_t>(i));
    dataset.labels.push_back(static_cast<uint16_t>(i));
  }
  dataset.mean = {0};
  dataset.stddev = {1.0f / 255};
  return dataset;
}

// Pairs of samples.
std::vector<std::vector<uint32_t>> Order(uint32_t size, uint32_t first = 0) {
  std::vector<std::vector<uint32_t>> batches;
  for (uint32_t i = 0; i < size; i += 2) {
    batches.push_back({first + i, first + i + 1});
  }
  return batches;
}

TEST(BatchReader, GivesEachBatchOfTheOrderOnceAndKeepsItWhileItIsUsed) {
  const Dataset dataset = Numbered(200);
  BatchReader reader(dataset, {}, 2);
  for (int epoch = 0; epoch < 3; ++epoch) {
    reader.Start(epoch, Order(100, static_cast<uint32_t>(epoch)));
    for (int64_t i = 0; i < 50; ++i) {
      const auto batch = reader.Next();
      ASSERT_THAT(batch, IsOk());
      EXPECT_EQ((*batch)->labels,
                (std::vector<int64_t>{epoch + 2 * i, epoch + 2 * i + 1}));
      EXPECT_FLOAT_EQ((*batch)->values[0], static_cast<float>(epoch + 2 * i));
    }
    EXPECT_THAT(reader.Next(), StatusIs(absl::StatusCode::kOutOfRange, "no"));
  }
}

TEST(BatchReader, ANewEpochLetsGoWhatWasNotTaken) {
  const Dataset dataset = Numbered(200);
  BatchReader reader(dataset, {}, 2);
  for (int i = 0; i < 20; ++i) {
    reader.Start(i, Order(100));
    ASSERT_THAT(reader.Next(), IsOk());
    reader.Start(i, Order(4, 150));
    const auto batch = reader.Next();
    ASSERT_THAT(batch, IsOk());
    EXPECT_EQ((*batch)->labels, (std::vector<int64_t>{150, 151}));
  }
}

TEST(BatchReader, TheErrorOfASampleComesWithItsBatch) {
  Dataset dataset = Numbered(8);
  dataset.read = [](size_t index, uint8_t* pixels) {
    *pixels = static_cast<uint8_t>(index);
    return index == 3 ? absl::DataLossError("three.png: byte 9: broken")
                      : absl::OkStatus();
  };
  BatchReader reader(dataset, {}, 2);
  reader.Start(0, Order(8));
  EXPECT_THAT(reader.Next(), IsOk());
  EXPECT_THAT(reader.Next(),
              StatusIs(absl::StatusCode::kDataLoss, "three.png: byte 9"));
}

}  // namespace
}  // namespace telegrad
