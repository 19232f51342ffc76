#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/kvstore/collective/collective_ranks.h"
#include "tests/kvstore/collective/difference.h"

// Ranks that disagree, leave or never come.
namespace telegrad::testing {
namespace {

using absl::StatusCode;

// The sum goes to rank `to`.
absl::Status Scatter(Group& group, float* data, size_t to) {
  std::vector<size_t> counts(static_cast<size_t>(group.world_size()), 0);
  counts[to] = 100;
  return group.ReduceScatterv(data, data + 1000, counts, Dtype::kFloat32,
                              ReduceOp::kSum);
}

absl::Status Split(Group& group, std::vector<int> ranks) {
  return group.Split(ranks).status();
}

// A rank that has returned need not come back for what it sent to arrive.
TEST(DistantRanks, NobodyWaitsForOneThatHasReturned) {
  GroupOptions options = InprocOptions(2);
  options.transport.link_latency_s = 5e-3;
  std::barrier returned(2);
  RunRanks(options, [&returned](Group& group) {
    for (int i = 0; i < 5; ++i) {
      std::vector<float> data(100, 1);
      EXPECT_THAT(Sum(group, data.data(), data.size()), IsOk());
      EXPECT_EQ(data[99], 2);
      returned.arrive_and_wait();  // meanwhile it drives nothing
    }
  });
}

class Disagreement
    : public ::testing::TestWithParam<std::tuple<Difference, int>> {};

TEST_P(Disagreement, IsAnErrorOfAllRanksThatNamesBoth) {
  const auto& [difference, ranks] = GetParam();
  // Nobody fails while others still connect.
  std::barrier connected(ranks);
  RunRanks(InprocOptions(ranks), [&difference = difference,
                                  &connected](Group& group) {
    std::vector<float> data(200000, 1);
    connected.arrive_and_wait();
    absl::Status status = group.rank() == 0
                              ? difference.first(group, data.data())
                              : difference.others(group, data.data());
    // A rank may have done its part before it hears of it.
    if (status.ok()) status = group.Barrier();
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, "differ"));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                 difference.first_says));
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                 difference.others_say));
    EXPECT_EQ(group.Barrier(), status) << "the first error stays";
  });
}

const std::vector<Difference> kDifferences = WithCommon({
    {"LargeCount", [](Group& g, float* d) { return Sum(g, d, 200000); },
     [](Group& g, float* d) { return Sum(g, d, 150000); }, "200000", "150000"},
    {"SmallAndLarge", [](Group& g, float* d) { return Sum(g, d, 10); },
     [](Group& g, float* d) { return Sum(g, d, 150000); }, "of 10 ", "150000"},
    {"NothingAndLarge", [](Group& g, float* d) { return Sum(g, d, 0); },
     [](Group& g, float* d) { return Sum(g, d, 150000); }, "of 0 ", "150000"},
    {"WideType",
     [](Group& g, float* d) {
       return g.Allreduce(d, 100, Dtype::kFloat64, ReduceOp::kProduct);
     },
     [](Group& g, float* d) {
       return g.Allreduce(d, 100, Dtype::kInt64, ReduceOp::kProduct);
     },
     "product of 100 float64", "product of 100 int64"},
    {"Split", [](Group& g, float*) { return Split(g, {0}); },
     [](Group& g, float*) {
       return Split(g, {0, 1});
     },
     "into 1 ranks", "into 2 ranks"},
    {"Counts", [](Group& g, float* d) { return Scatter(g, d, 0); },
     [](Group& g, float* d) { return Scatter(g, d, 1); }, "reduce-scatter",
     "counts"},
    {"OperationAndLarge", [](Group& g, float*) { return g.Barrier(); },
     [](Group& g, float* d) { return Sum(g, d, 150000); }, "barrier",
     "allreduce"},
    {"Algorithm",
     [](Group& g, float* d) {
       return Sum(g, d, 100, {.algorithm = CollectiveAlgorithm::kRing});
     },
     [](Group& g, float* d) {
       return Sum(g, d, 100,
                  {.algorithm = CollectiveAlgorithm::kRecursiveDoubling});
     },
     "ring", "recursive_doubling"},
    {"LargeRoot",
     [](Group& g, float* d) {
       return g.Broadcast(d, 200000, Dtype::kFloat32, 1);
     },
     [](Group& g, float* d) {
       return g.Broadcast(d, 200000, Dtype::kFloat32, 0);
     },
     "root 1", "root 0"},
});

INSTANTIATE_TEST_SUITE_P(Of, Disagreement,
                         ::testing::Combine(::testing::ValuesIn(kDifferences),
                                            ::testing::Values(2, 3)),
                         [](const auto& param_info) {
                           return absl::StrCat(
                               std::get<0>(param_info.param).test_name,
                               std::get<1>(param_info.param));
                         });

// Both sides and both counts are named.
TEST(CollectiveFailure, OtherSizesOfAnAlltoallvAreNamed) {
  for (const size_t count : {size_t{0}, size_t{10}, size_t{100000}}) {
    std::barrier connected(3);
    RunRanks(InprocOptions(3), [&](Group& group) {
      std::vector<float> in(300003), out(300003);
      std::vector<size_t> sends(3, count), receives(3, count);
      if (group.rank() == 1) sends[2] = count + 1;
      connected.arrive_and_wait();
      absl::Status status = group.Alltoallv(in.data(), sends, out.data(),
                                            receives, Dtype::kFloat32);
      while (status.ok()) status = group.Barrier();
      EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                   absl::StrCat("rank 1 sends ", 4 * count + 4,
                                                " bytes to rank 2, which "
                                                "expects ",
                                                4 * count)));
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
    });
  }
}

TEST(CollectiveFailure, SettingsThatDifferAreRefusedBeforeAnythingElse) {
  Meeting meeting(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = InprocOptions(2);
      options.rank = rank;
      if (rank == 1) options.chunk_bytes = 8192;
      EXPECT_THAT(Group::Make(options, meeting.ExchangeOf(rank)),
                  StatusIs(StatusCode::kFailedPrecondition, "8192"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CollectiveFailure, LostRankIsNamedByAllOthers) {
  for (const size_t count : {size_t{10}, size_t{200000}}) {
    RunRanks(InprocOptions(4), [&](Group& group) {
      std::vector<float> data(count, 1);
      // Goes away; others may hear of it before their barrier ends.
      absl::Status status = group.Barrier();
      if (group.rank() == 2) return;
      while (status.ok()) status = Sum(group, data.data(), count);
      EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, "rank 2 is lost"));
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied);
    });
  }
}

TEST(CollectiveFailure, RankThatNeverComesIsNamedAtTheDeadline) {
  std::atomic<int> num_failed{0};
  RunRanks(InprocOptions(3), [&](Group& group) {
    group.set_timeout(std::chrono::milliseconds(200));
    std::vector<float> data(200000, 1);
    if (group.rank() == 2) {  // there, but in no collective
      const TimePoint deadline = Clock::now() + std::chrono::seconds(60);
      while (num_failed < 2 && Clock::now() < deadline) {
        std::this_thread::yield();
      }
      return;
    }
    const absl::Status status = Sum(group, data.data(), data.size());
    ++num_failed;
    EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, "rank 2"));
  });
}

TEST(CollectiveFailure, MissingRankIsNamedWhenTheGroupIsMade) {
  GroupOptions options = InprocOptions(2);
  options.timeout = std::chrono::milliseconds(100);
  const auto group =
      Group::Make(options,
                  [](const std::string& mine,
                     TimePoint) -> absl::StatusOr<std::vector<std::string>> {
                    return std::vector<std::string>{mine, mine};
                  });
  EXPECT_THAT(group, StatusIs(StatusCode::kDeadlineExceeded, "rank 1"));
  EXPECT_EQ(ExitCodeOf(group.status()), ExitCode::kJoinTimeout);
}

TEST(CollectiveFailure, FailedExchangeIsReported) {
  const auto group =
      Group::Make(InprocOptions(2),
                  [](const std::string&,
                     TimePoint) -> absl::StatusOr<std::vector<std::string>> {
                    return absl::UnavailableError("no store");
                  });
  EXPECT_THAT(group, StatusIs(StatusCode::kUnavailable, "no store"));
}

TEST(CollectiveFailure, ImpossibleOptionsAreRefused) {
  GroupOptions options = InprocOptions(2);
  options.rank = 2;
  EXPECT_THAT(Group::Make(options, nullptr),
              StatusIs(StatusCode::kInvalidArgument, "rank 2 of 2"));
  options = InprocOptions(2);
  options.chunk_bytes = 1;
  EXPECT_THAT(Group::Make(options, nullptr),
              StatusIs(StatusCode::kInvalidArgument, "chunk_bytes 1"));
}

TEST(CollectiveFailure, BackendsAreFoundWithoutADevice) {
  EXPECT_THAT(Group::Find(InprocOptions(2)), IsOk());
  GroupOptions options = {.backend = "pigeon"};
  EXPECT_THAT(Group::Find(options),
              StatusIs(StatusCode::kNotFound, "no groups by \"pigeon\": host"));
  options = {.backend = "nccl", .nccl_library = "libpigeon.so.2"};
  const absl::Status found = Group::Find(options);
  EXPECT_THAT(found, StatusIs(found.code(), "nccl"));
  EXPECT_TRUE(absl::IsUnavailable(found) || absl::IsNotFound(found)) << found;
}

// Who has its result may compute for long; messages that need the sender's
// progress are on their way until the others have them.
TEST(CollectiveEnd, NobodyNeedsTheProgressOfRanksThatAreDone) {
  for (const auto& [transport, tls] :
       {std::pair("tcp", "tcp"), std::pair("tcp", ""), std::pair("ucx", "tcp"),
        std::pair("ucx", "shm"), std::pair("ofi", "tcp"),
        std::pair("ofi", "shm")}) {
    if (absl::StrContains(DescribeTransports(),
                          absl::StrCat(transport, ": not in"))) {
      continue;
    }
    GroupOptions options = InprocOptions(3);
    options.transport.name = transport;
    options.transport.tls = tls;
    std::barrier pause(options.world_size);
    RunRanks(options, [&](Group& group) {
      const auto n = static_cast<size_t>(group.world_size());
      constexpr size_t kCount = 8333;
      std::vector<float> in(kCount * n, 1), out(kCount * n);
      for (int round = 0; round < 5; ++round) {
        EXPECT_THAT(
            group.Allgather(in.data(), out.data(), kCount, Dtype::kFloat32),
            IsOk())
            << transport << " " << tls;
        pause.arrive_and_wait();
        EXPECT_THAT(
            group.Alltoall(in.data(), out.data(), kCount, Dtype::kFloat32),
            IsOk())
            << transport << " " << tls;
        pause.arrive_and_wait();
      }
    });
  }
}

}  // namespace
}  // namespace telegrad::testing
