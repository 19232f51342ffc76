#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kvstore/collective/collective_case.h"

// Which algorithm is taken, and sums of ranks that share hosts.
namespace telegrad::testing {
namespace {

using collective::AllreduceSeconds;
using collective::Choose;

// Hosts of one size, of different ones, of ranks that are no neighbours, alone.
std::vector<std::vector<int>> Layouts(int ranks) {
  std::vector<std::vector<int>> layouts(4);
  for (int rank = 0; rank < ranks; ++rank) {
    layouts[0].push_back(rank / 2);
    layouts[1].push_back(rank < 3 ? 7 : rank / 4);
    layouts[2].push_back(rank % 3);
    layouts[3].push_back(5);
  }
  return layouts;
}

// Sums whose bits depend on the order: all ranks have the same, again and
// again.
TEST_P(Collective, TwoLevelsSumHostsOfAnySize) {
  for (const std::vector<int>& hosts : Layouts(GetParam().ranks)) {
    GroupOptions options = Options();
    options.hosts = hosts;
    options.allreduce = Algorithm::kTwoLevel;
    RunRanks(options, [](Group& group) {
      const auto n = static_cast<size_t>(group.world_size());
      for (const size_t count : kCounts) {
        std::vector<float> exact = Floats(group.rank(), count);
        ASSERT_THAT(group.Allreduce(exact.data(), count, Dtype::kFloat32,
                                    ReduceOp::kSum),
                    IsOk());
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(exact[i], static_cast<float>(SumAt(group.world_size(), i)))
              << "count " << count << " at " << i;
        }
        std::vector<std::vector<float>> rounded(2);
        for (std::vector<float>& data : rounded) {
          data = Floats(group.rank(), count);
          for (float& value : data) value *= 0.1f;
          ASSERT_THAT(group.Allreduce(data.data(), count, Dtype::kFloat32,
                                      ReduceOp::kSum),
                      IsOk());
        }
        EXPECT_EQ(rounded[0], rounded[1]);
        std::vector<float> all(n * count);
        ASSERT_THAT(group.Allgather(rounded[0].data(), all.data(), count,
                                    Dtype::kFloat32),
                    IsOk());
        for (size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(all[i], rounded[0][i % count]);
        }
      }
    });
  }
}

GroupOptions Ranks(int ranks, int of_a_host) {
  GroupOptions options;
  options.world_size = ranks;
  for (int rank = 0; of_a_host > 0 && rank < ranks; ++rank) {
    options.hosts.push_back(rank / of_a_host);
  }
  return options;
}

Algorithm Chosen(Operation operation, size_t bytes,
                 const GroupOptions& options) {
  return *Choose(operation, Algorithm::kAuto, bytes, options);
}

constexpr size_t kMiB = size_t{1} << 20;

TEST(ChooseAlgorithm, GoesBySizeRanksHostsAndLinks) {
  const auto sum = [](size_t bytes, const GroupOptions& options) {
    return Chosen(Operation::kAllreduce, bytes, options);
  };
  EXPECT_EQ(sum(4, Ranks(8, 0)), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(sum(64 * kMiB, Ranks(2, 0)), Algorithm::kRing);
  EXPECT_EQ(sum(kMiB, Ranks(64, 0)), Algorithm::kHalvingDoubling);
  EXPECT_EQ(sum(kMiB, Ranks(33, 0)), Algorithm::kTree);
  EXPECT_EQ(sum(256 * kMiB, Ranks(33, 0)), Algorithm::kRing);
  // 5 hosts of 8: a ring has many messages, and passes a link nearly twice.
  EXPECT_EQ(sum(kMiB, Ranks(40, 8)), Algorithm::kTwoLevel);
  EXPECT_EQ(sum(64 * kMiB, Ranks(40, 8)), Algorithm::kRing);
  GroupOptions gigabit = Ranks(40, 8);
  gigabit.bytes_per_s = 125e6;
  EXPECT_EQ(sum(64 * kMiB, gigabit), Algorithm::kTwoLevel);
  // All eight of a host send to another one.
  GroupOptions mixed = Ranks(40, 0);
  for (int rank = 0; rank < 40; ++rank) mixed.hosts.push_back(rank % 5);
  EXPECT_EQ(sum(64 * kMiB, mixed), Algorithm::kTwoLevel);
  // A link of 1 Gbit/s: what passes it counts, not how many messages.
  GroupOptions slow = Ranks(33, 0);
  slow.bytes_per_s = 125e6;
  EXPECT_EQ(sum(16 * kMiB, slow), Algorithm::kRing);
  // A plan's, but where one is forced.
  slow.sums = {{SumWay::kHalvingDoubling, 1000}, {SumWay::kTwoLevel}};
  EXPECT_EQ(sum(1000, slow), Algorithm::kHalvingDoubling);
  EXPECT_EQ(sum(1004, slow), Algorithm::kTwoLevel);
  slow.allreduce = Algorithm::kTree;
  EXPECT_EQ(sum(16 * kMiB, slow), Algorithm::kTree);
}

TEST(ChooseAlgorithm, TakesTreesForWhatAllGet) {
  const auto broadcast = [](size_t bytes, int ranks) {
    return Chosen(Operation::kBroadcast, bytes, Ranks(ranks, 0));
  };
  EXPECT_EQ(broadcast(4, 64), Algorithm::kBinomial);
  EXPECT_EQ(broadcast(kMiB, 64), Algorithm::kTree);
  EXPECT_EQ(broadcast(64 * kMiB, 4), Algorithm::kChain);
  const auto gather = [](size_t bytes, int ranks) {
    return Chosen(Operation::kAllgather, bytes, Ranks(ranks, 0));
  };
  EXPECT_EQ(gather(64, 4), Algorithm::kDirect);
  EXPECT_EQ(gather(64, 64), Algorithm::kBruck);
  EXPECT_EQ(gather(kMiB, 64), Algorithm::kRing);
}

// By hand: 4 hosts of 2 ranks, 1 MB, 20 us and 1 GB/s between them, 10 us and 4
// GB/s in one. Two levels: in a host 2 messages and 1 MB, between them 1.5 MB
// in 2 * 2 + 1 messages by halves.
TEST(ChooseAlgorithm, PredictsTwoLevelsAsTheirParts) {
  GroupOptions options = Ranks(8, 2);
  options.bytes_per_s = 1e9;
  EXPECT_NEAR(AllreduceSeconds(Algorithm::kTwoLevel, 1'000'000, options),
              2 * 10e-6 + 1e6 / 4e9 + 5 * 20e-6 + 1.5e6 / 1e9, 1e-9);
}

TEST(GroupOptions, AreCheckedAndCompared) {
  const auto make = [](GroupOptions options) {
    return Group::Make(options,
                       [](const std::string& mine, TimePoint) {
                         return std::vector<std::string>{mine};
                       })
        .status();
  };
  GroupOptions options = InprocOptions(1);
  options.allreduce = Algorithm::kChain;
  EXPECT_THAT(make(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "two_level"));
  options = InprocOptions(1);
  options.hosts = {1, 2};
  EXPECT_THAT(make(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "hosts of 2"));
  options = InprocOptions(1);
  options.backend = "nccl";
  options.transport.encryption = Encryption::kOn;
  EXPECT_THAT(make(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                      "those of \"host\" can"));
  Meeting meeting(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions mine = InprocOptions(2);
      mine.rank = rank;
      if (rank == 1) mine.allreduce = Algorithm::kTree;
      EXPECT_THAT(
          Group::Make(mine, meeting.ExchangeOf(rank)).status(),
          StatusIs(absl::StatusCode::kFailedPrecondition, "allreduce tree"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace telegrad::testing
