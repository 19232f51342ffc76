#include <gtest/gtest.h>

#include <set>

#include "trainer/data/dataset.h"

namespace telegrad {
namespace {

TEST(EpochShare, SharesAreDisjointWholeBatchesOfOnePermutation) {
  std::set<uint32_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<uint32_t> share = EpochShare(1000, 5, 2, rank, 3, 32);
    EXPECT_EQ(share.size(), 320u);  // 333 rounded down to batches
    for (uint32_t index : share) {
      EXPECT_LT(index, 1000u);
      EXPECT_TRUE(seen.insert(index).second) << index;
    }
  }
}

TEST(EpochShare, DependsOnSeedAndEpoch) {
  const std::vector<uint32_t> share = EpochShare(1000, 5, 2, 0, 1, 10);
  EXPECT_EQ(share, EpochShare(1000, 5, 2, 0, 1, 10));
  EXPECT_NE(share, EpochShare(1000, 6, 2, 0, 1, 10));
  EXPECT_NE(share, EpochShare(1000, 5, 3, 0, 1, 10));
}

TEST(EpochShare, IsEmptyWhenThereIsNoFullBatch) {
  EXPECT_TRUE(EpochShare(10, 0, 0, 0, 1, 11).empty());
  EXPECT_TRUE(EpochShare(10, 0, 0, 2, 2, 1).empty());
  EXPECT_TRUE(EpochShare(10, 0, 0, 0, 0, 1).empty());
  EXPECT_TRUE(EpochShare(10, 0, 0, 0, 1, int64_t{1} << 32).empty());
}

TEST(GatherBatch, CopiesTheChosenSamplesNormalised) {
  Dataset dataset;
  dataset.rows = 1;
  dataset.cols = 2;
  dataset.pixels = {0, 51, 102, 255};
  dataset.labels = {3, 7};
  dataset.mean = {0.5f};
  dataset.stddev = {0.25f};
  const uint32_t indices[] = {1, 0};
  float images[4];
  int64_t labels[2];
  ASSERT_TRUE(GatherBatch(dataset, {}, indices, images, labels).ok());
  EXPECT_FLOAT_EQ(images[0], (0.4f - 0.5f) / 0.25f);
  EXPECT_FLOAT_EQ(images[1], 2.0f);
  EXPECT_FLOAT_EQ(images[2], -2.0f);
  EXPECT_EQ(labels[0], 7);
  EXPECT_EQ(labels[1], 3);
}

TEST(LoadDataset, UnknownNamesListTheChoices) {
  const absl::Status status = LoadDataset("cifar").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.ToString().find("digits, digits:rgb32, mnist:DIR"),
            std::string::npos);
  EXPECT_EQ(LoadDataset("mnist:").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace telegrad
