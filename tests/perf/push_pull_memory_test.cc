#include "perf/network/push_pull_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_code.h"

namespace telegrad::perf {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;

TEST(PushPullMemory, CountsArraysOfEachRank) {
  PushPullSizes sizes = {.workers = 2,
                         .all_elems = 100,
                         .largest_batch_elems = 80,
                         .largest_tensor_elems = 50};
  // Two workers with 2 * 80 + 3 * 100, servers with (2 + 2) * 100.
  EXPECT_EQ(MemoryBytes(sizes), 4u * (2 * 460 + 400));
  sizes.compresses = false;
  EXPECT_EQ(MemoryBytes(sizes), 4u * (2 * 160 + 400));
  sizes.compresses = true;
  sizes.checks = true;
  EXPECT_EQ(MemoryBytes(sizes), 4u * (2 * (460 + 100) + 400));
  sizes.replays = true;
  EXPECT_EQ(MemoryBytes(sizes), 4u * (2 * (460 + 320 + 150) + 400));
}

// Each of 64 workers repeats what all 64 do.
TEST(PushPullMemory, ThatIsNotThereIsRefused) {
  PushPullSizes sizes = {.workers = 64,
                         .all_elems = size_t{5} << 20,
                         .largest_batch_elems = size_t{4} << 20,
                         .largest_tensor_elems = size_t{4} << 20};
  EXPECT_TRUE(CheckMemory(sizes, 24 * kGib).ok());
  sizes.checks = true;
  sizes.replays = true;
  const absl::Status refused = CheckMemory(sizes, 24 * kGib);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kResourceLimit);
  EXPECT_THAT(refused.message(),
              HasSubstr("64 workers on this host with --check need about"));
  EXPECT_THAT(refused.message(),
              HasSubstr("less --size, leave --check out, or --overcommit"));
  EXPECT_TRUE(CheckMemory(sizes, 512 * kGib).ok());
}

TEST(PushPullMemory, OfThisMachineIsKnown) {
  const auto available = AvailableMemoryBytes();
  ASSERT_TRUE(available.has_value());
  EXPECT_GT(*available, uint64_t{1} << 20);
}

}  // namespace
}  // namespace telegrad::perf
