#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "tests/kvstore/collective/collective_case.h"

namespace telegrad::testing {
namespace {

TEST_P(Collective, AllreduceSumsEveryElement) {
  RunRanks(Options(), [](Group& group) {
    std::vector<Algorithm> all = AlgorithmsOf(Operation::kAllreduce);
    all.push_back(Algorithm::kAuto);
    for (const Algorithm algorithm : all) {
      for (const size_t count : kCounts) {
        std::vector<float> data = Floats(group.rank(), count);
        ASSERT_THAT(group.Allreduce(data.data(), count, Dtype::kFloat32,
                                    ReduceOp::kSum, {.algorithm = algorithm}),
                    IsOk());
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(data[i], static_cast<float>(SumAt(group.world_size(), i)))
              << ToString(algorithm) << " count " << count << " at " << i;
        }
      }
    }
  });
}

TEST_P(Collective, ReduceScatterGivesEachRankItsBlock) {
  RunRanks(Options(), [](Group& group) {
    const auto n = static_cast<size_t>(group.world_size());
    for (const Algorithm algorithm : AlgorithmsOf(Operation::kReduceScatter)) {
      for (const size_t count : kCounts) {
        const std::vector<float> in = Floats(group.rank(), n * count);
        std::vector<float> out(count, -99);
        ASSERT_THAT(
            group.ReduceScatter(in.data(), out.data(), count, Dtype::kFloat32,
                                ReduceOp::kSum, {.algorithm = algorithm}),
            IsOk());
        const size_t begin = static_cast<size_t>(group.rank()) * count;
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i],
                    static_cast<float>(SumAt(group.world_size(), begin + i)))
              << ToString(algorithm) << " count " << count << " at " << i;
        }
      }
    }
  });
}

TEST_P(Collective, AllgatherPutsBlocksInTheOrderOfRanks) {
  RunRanks(Options(), [](Group& group) {
    const auto n = static_cast<size_t>(group.world_size());
    for (const Algorithm algorithm : AlgorithmsOf(Operation::kAllgather)) {
      for (const size_t count : kCounts) {
        std::vector<float> expected;
        for (int rank = 0; rank < group.world_size(); ++rank) {
          const std::vector<float> block = Floats(rank, count);
          expected.insert(expected.end(), block.begin(), block.end());
        }
        std::vector<float> out(n * count, -99);
        const std::vector<float> in = Floats(group.rank(), count);
        ASSERT_THAT(group.Allgather(in.data(), out.data(), count,
                                    Dtype::kFloat32, {.algorithm = algorithm}),
                    IsOk());
        ASSERT_TRUE(out == expected)
            << ToString(algorithm) << " count " << count;
      }
    }
  });
}

TEST_P(Collective, BroadcastReachesAllFromEveryRoot) {
  RunRanks(Options(), [](Group& group) {
    for (const Algorithm algorithm : AlgorithmsOf(Operation::kBroadcast)) {
      for (int root = 0; root < group.world_size(); ++root) {
        for (const size_t count : kCounts) {
          std::vector<float> data = Floats(group.rank(), count);
          ASSERT_THAT(group.Broadcast(data.data(), count, Dtype::kFloat32, root,
                                      {.algorithm = algorithm}),
                      IsOk());
          ASSERT_TRUE(data == Floats(root, count))
              << ToString(algorithm) << " root " << root << " count " << count;
        }
      }
    }
  });
}

TEST_P(Collective, AlltoallTransposesBlocks) {
  RunRanks(Options(), [](Group& group) {
    const auto n = static_cast<size_t>(group.world_size());
    const auto self = static_cast<size_t>(group.rank());
    for (const Algorithm algorithm : AlgorithmsOf(Operation::kAlltoall)) {
      for (const size_t count : kCounts) {
        const std::vector<float> in = Floats(group.rank(), n * count);
        std::vector<float> out(n * count, -99);
        ASSERT_THAT(group.Alltoall(in.data(), out.data(), count,
                                   Dtype::kFloat32, {.algorithm = algorithm}),
                    IsOk());
        for (size_t from = 0; from < n; ++from) {
          const std::vector<float> theirs =
              Floats(static_cast<int>(from), n * count);
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(out[from * count + i], theirs[self * count + i])
                << ToString(algorithm) << " count " << count;
          }
        }
      }
    }
  });
}

// Roots run ahead of the others between these.
TEST_P(Collective, ManySmallOnesInARowStayInOrder) {
  RunRanks(Options(), [](Group& group) {
    for (int round = 0; round < 300; ++round) {
      int32_t value = group.rank() == 0 ? round : -1;
      ASSERT_THAT(group.Broadcast(&value, 1, Dtype::kInt32, 0), IsOk());
      ASSERT_EQ(value, round);
      if (round % 50 != 0) continue;
      ASSERT_THAT(group.Barrier(), IsOk());
    }
  });
}

TEST_P(Collective, BarrierHoldsAllUntilTheLastHasCome) {
  std::atomic<int> num_come{0};
  RunRanks(Options(), [&](Group& group) {
    for (int round = 1; round <= 20; ++round) {
      ++num_come;
      ASSERT_THAT(group.Barrier(), IsOk());
      ASSERT_GE(num_come.load(), round * group.world_size());
    }
  });
}

TEST_P(Collective, LargeDataFlowInManyPieces) {
  GroupOptions options = Options();
  options.chunk_bytes = size_t{64} << 10;
  RunRanks(options, [](Group& group) {
    constexpr size_t kCount = 1'000'003;
    std::vector<float> data = Floats(group.rank(), kCount);
    ASSERT_THAT(
        group.Allreduce(data.data(), kCount, Dtype::kFloat32, ReduceOp::kSum,
                        {.algorithm = Algorithm::kRing}),
        IsOk());
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(data[i], static_cast<float>(SumAt(group.world_size(), i)));
    }
    // Each rank sends 2 (n - 1) / n of the bytes.
    const auto n = static_cast<double>(group.world_size());
    EXPECT_NEAR(static_cast<double>(group.traffic().payload_bytes),
                8 * (n - 1) / n * kCount, 16 * n);
  });
}

TEST_P(Collective, WrongArgumentsLeaveTheGroupWhole) {
  RunRanks(Options(), [](Group& group) {
    std::vector<float> data(9, 1);
    EXPECT_THAT(
        group.Broadcast(data.data(), 9, Dtype::kFloat32, group.world_size()),
        StatusIs(absl::StatusCode::kInvalidArgument, "root"));
    EXPECT_THAT(group.Allreduce(data.data(), 9, Dtype::kFloat32, ReduceOp::kSum,
                                {.algorithm = Algorithm::kChain}),
                StatusIs(absl::StatusCode::kInvalidArgument, "chain"));
    EXPECT_THAT(group.Allreduce(reinterpret_cast<char*>(data.data()) + 1, 8,
                                Dtype::kFloat32, ReduceOp::kSum),
                StatusIs(absl::StatusCode::kInvalidArgument, "aligned"));
    EXPECT_THAT(group.Allreduce(data.data(), std::numeric_limits<size_t>::max(),
                                Dtype::kFloat32, ReduceOp::kSum),
                StatusIs(absl::StatusCode::kInvalidArgument, "count"));
    const std::vector<size_t> counts(
        static_cast<size_t>(group.world_size()) + 1, 1);
    EXPECT_THAT(
        group.Allgatherv(data.data(), data.data(), counts, Dtype::kFloat32),
        StatusIs(absl::StatusCode::kInvalidArgument, "counts"));
    std::vector<size_t> sends(counts.begin() + 1, counts.end());
    std::vector<size_t> receives = sends;
    receives[static_cast<size_t>(group.rank())] = 2;
    EXPECT_THAT(group.Alltoallv(data.data(), sends, data.data(), receives,
                                Dtype::kFloat32),
                StatusIs(absl::StatusCode::kInvalidArgument, "sends itself 1"));
    EXPECT_THAT(group.Barrier(), IsOk());
  });
}

constexpr Setting kSettings[] = {
    {"Inproc1", "inproc", "", 1}, {"Inproc2", "inproc", "", 2},
    {"Inproc3", "inproc", "", 3}, {"Inproc4", "inproc", "", 4},
    {"Inproc5", "inproc", "", 5}, {"Inproc6", "inproc", "", 6},
    {"Inproc7", "inproc", "", 7}, {"Inproc8", "inproc", "", 8},
    {"Inproc9", "inproc", "", 9}, {"Tcp2", "tcp", "tcp", 2},
    {"Tcp3", "tcp", "tcp", 3},    {"TcpSameHost3", "tcp", "", 3},
    {"UcxTcp2", "ucx", "tcp", 2}, {"UcxTcp3", "ucx", "tcp", 3},
    {"OfiTcp2", "ofi", "tcp", 2}, {"UcxShm2", "ucx", "shm", 2},
    {"UcxShm5", "ucx", "shm", 5}};

INSTANTIATE_TEST_SUITE_P(Ranks, Collective, ::testing::ValuesIn(kSettings),
                         [](const auto& param_info) {
                           return std::string(param_info.param.test_name);
                         });

}  // namespace
}  // namespace telegrad::testing
