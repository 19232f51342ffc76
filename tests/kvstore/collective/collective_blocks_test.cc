#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/kvstore/collective/collective_case.h"

// Blocks of different sizes.
namespace telegrad::testing {
namespace {

TEST_P(Collective, AllgathervTakesBlocksOfDifferentSizesAndNone) {
  RunRanks(Options(), [](Group& group) {
    std::vector<size_t> counts;
    std::vector<float> expected;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      counts.push_back(rank == 1 ? 0 : 20000 / static_cast<size_t>(rank + 1));
      const std::vector<float> block = Floats(rank, counts.back());
      expected.insert(expected.end(), block.begin(), block.end());
    }
    const std::vector<float> in =
        Floats(group.rank(), counts[static_cast<size_t>(group.rank())]);
    for (const Algorithm algorithm : AlgorithmsOf(Operation::kAllgather)) {
      std::vector<float> out(expected.size(), -99);
      ASSERT_THAT(group.Allgatherv(in.data(), out.data(), counts,
                                   Dtype::kFloat32, {.algorithm = algorithm}),
                  IsOk());
      EXPECT_TRUE(out == expected) << ToString(algorithm);
    }
  });
}

TEST_P(Collective, ReduceScattervTakesBlocksOfDifferentSizesAndNone) {
  RunRanks(Options(), [](Group& group) {
    for (const size_t most : {size_t{40}, size_t{20000}}) {
      std::vector<size_t> counts;
      for (int rank = 0; rank < group.world_size(); ++rank) {
        counts.push_back(rank == 1 ? 0 : most / static_cast<size_t>(rank + 1));
      }
      const auto self = counts.begin() + group.rank();
      const size_t begin = std::accumulate(counts.begin(), self, size_t{0});
      const size_t all = std::accumulate(self, counts.end(), begin);
      const std::vector<float> in = Floats(group.rank(), all);
      for (const Algorithm algorithm :
           {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect}) {
        std::vector<float> out(*self, -99);
        ASSERT_THAT(
            group.ReduceScatterv(in.data(), out.data(), counts, Dtype::kFloat32,
                                 ReduceOp::kSum, {.algorithm = algorithm}),
            IsOk());
        for (size_t i = 0; i < *self; ++i) {
          ASSERT_EQ(out[i],
                    static_cast<float>(SumAt(group.world_size(), begin + i)))
              << ToString(algorithm) << " at " << i << " of " << *self;
        }
      }
    }
  });
}

// Nothing, small blocks and large ones in one call.
TEST_P(Collective, AlltoallvTransposesBlocksOfDifferentSizes) {
  RunRanks(Options(), [](Group& group) {
    const int n = group.world_size();
    const auto count_of = [](int from, int to) {
      return static_cast<size_t>((from * 3 + to * 5) % 4 * 7001);
    };
    std::vector<size_t> sends, receives;
    std::vector<float> in, expected;
    for (int rank = 0; rank < n; ++rank) {
      sends.push_back(count_of(group.rank(), rank));
      receives.push_back(count_of(rank, group.rank()));
      const auto tell = [](int from, int to, size_t count) {
        return Floats(from * 10 + to, count);
      };
      const auto out = tell(group.rank(), rank, sends.back());
      in.insert(in.end(), out.begin(), out.end());
      const auto comes = tell(rank, group.rank(), receives.back());
      expected.insert(expected.end(), comes.begin(), comes.end());
    }
    for (const Algorithm algorithm :
         {Algorithm::kAuto, Algorithm::kDirect, Algorithm::kPairwise}) {
      std::vector<float> out(expected.size(), -99);
      ASSERT_THAT(group.Alltoallv(in.data(), sends, out.data(), receives,
                                  Dtype::kFloat32, {.algorithm = algorithm}),
                  IsOk());
      ASSERT_TRUE(out == expected) << ToString(algorithm);
    }
    const std::vector<size_t> none(static_cast<size_t>(n), 0);
    EXPECT_THAT(group.Alltoallv(nullptr, none, nullptr, none, Dtype::kBool),
                IsOk());
  });
}

// The ranks from the last on, without rank 0 where there are others; then a
// group of one, and the first group again.
TEST_P(Collective, SplitGroupsGoTheirOwnWay) {
  RunRanks(Options(), [](Group& group) {
    const int n = group.world_size();
    std::vector<int> ranks;
    for (int rank = n - 1; rank >= (n > 1 ? 1 : 0); --rank) {
      ranks.push_back(rank);
    }
    const auto part = group.Split(ranks);
    ASSERT_THAT(part, IsOk());
    const bool is_in = n == 1 || group.rank() > 0;
    ASSERT_EQ(*part != nullptr, is_in);
    for (int round = 0; is_in && round < 3; ++round) {
      ASSERT_EQ((*part)->world_size(), static_cast<int>(ranks.size()));
      EXPECT_EQ(ranks[static_cast<size_t>((*part)->rank())], group.rank());
      std::vector<int64_t> data(5000, group.rank());
      ASSERT_THAT((*part)->Allreduce(data.data(), data.size(), Dtype::kInt64,
                                     ReduceOp::kSum),
                  IsOk());
      EXPECT_EQ(data.back(), n * (n - 1) / 2);
    }
    const std::vector<int> alone = {n - 1};
    const auto last = group.Split(alone);
    ASSERT_THAT(last, IsOk());
    if (*last != nullptr) {
      EXPECT_THAT((*last)->Barrier(), IsOk());
    }
    for (const std::vector<int>& wrong :
         {std::vector<int>{}, {n}, {-1}, {0, 0}}) {
      EXPECT_THAT(group.Split(wrong),
                  StatusIs(absl::StatusCode::kInvalidArgument, "split"));
    }
    EXPECT_THAT(group.Barrier(), IsOk());
  });
}

}  // namespace
}  // namespace telegrad::testing
