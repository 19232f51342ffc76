#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <numeric>
#include <thread>

#include "base/exit_code.h"
#include "tests/kvstore/collective/collective_case.h"

// Messages between two ranks.
namespace telegrad::testing {
namespace {

using absl::StatusCode;

// Nothing, in the first header, one piece and several.
constexpr size_t kSizes[] = {0, 3, 4096, 4097, 100003};

MATCHER_P(ComesFrom, rank, "") {
  *result_listener << arg.status().ToString();
  return arg.ok() && *arg == rank;
}

// All ranks to all others, each message from a thread, while the group sums.
TEST_P(Collective, MessagesComeInAnyOrderBesideCollectives) {
  GroupOptions options = Options();
  options.sends = true;
  RunRanks(options, [](Group& group) {
    std::vector<std::thread> threads;
    for (int peer = 0; peer < group.world_size(); ++peer) {
      if (peer == group.rank()) continue;
      for (uint32_t tag = 0; tag < std::size(kSizes); ++tag) {
        threads.emplace_back([&group, peer, tag] {
          const auto data = Floats(group.rank() + 7 * peer, kSizes[tag]);
          EXPECT_THAT(
              group.Send(data.data(), data.size(), Dtype::kFloat32, peer, tag),
              IsOk());
        });
      }
      threads.emplace_back([&group, peer] {
        for (uint32_t tag = std::size(kSizes); tag-- > 0;) {
          std::vector<float> data(kSizes[tag], -99);
          EXPECT_THAT(group.Receive(data.data(), data.size(), Dtype::kFloat32,
                                    peer, tag),
                      ComesFrom(peer));
          EXPECT_TRUE(data == Floats(peer + 7 * group.rank(), kSizes[tag]));
        }
      });
    }
    for (int round = 0; round < 5; ++round) {
      std::vector<int64_t> ones(5000, 1);
      EXPECT_THAT(group.Allreduce(ones.data(), ones.size(), Dtype::kInt64,
                                  ReduceOp::kSum),
                  IsOk());
      EXPECT_EQ(ones.back(), group.world_size());
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(group.Barrier(), IsOk());
  });
}

GroupOptions Options(int ranks) {
  GroupOptions options = InprocOptions(ranks);
  options.sends = true;
  return options;
}

// More than a receiver keeps; the last ones wait at the sender.
TEST(SendReceive, MessagesOfOneTagKeepTheirOrder) {
  RunRanks(Options(2), [](Group& group) {
    for (int64_t i = 0; i < 200; ++i) {
      int64_t value = i;
      if (group.rank() == 0) {
        ASSERT_THAT(group.Send(&value, 1, Dtype::kInt64, 1), IsOk());
        continue;
      }
      if (i == 0) std::this_thread::yield();
      value = -1;
      ASSERT_THAT(group.Receive(&value, 1, Dtype::kInt64, 0), IsOk());
      ASSERT_EQ(value, i);
    }
    EXPECT_THAT(group.Barrier(), IsOk());
  });
}

TEST(SendReceive, AnyRankIsNamedByTheReceive) {
  RunRanks(Options(3), [](Group& group) {
    if (group.rank() > 0) {
      const double own = group.rank();
      EXPECT_THAT(group.Send(&own, 1, Dtype::kFloat64, 0, 5), IsOk());
    }
    for (int i = 0; group.rank() == 0 && i < 2; ++i) {
      double value = 0;
      const auto from = group.Receive(&value, 1, Dtype::kFloat64, kAnyRank, 5);
      ASSERT_THAT(from, IsOk());
      EXPECT_EQ(value, *from);
    }
    EXPECT_THAT(group.Barrier(), IsOk());
  });
}

TEST(SendReceive, OtherSizesAndTypesAreNamedAndTheGroupGoesOn) {
  RunRanks(Options(2), [](Group& group) {
    std::vector<float> data(20000, 1);
    for (const size_t count : {size_t{10}, size_t{20000}}) {
      for (const Dtype type : {Dtype::kFloat32, Dtype::kInt32}) {
        const absl::Status status =
            group.rank() == 0
                ? group.Send(data.data(), count, Dtype::kFloat32, 1)
                : group
                      .Receive(data.data(),
                               type == Dtype::kInt32 ? count : count - 1, type,
                               0)
                      .status();
        // A small one has left by then.
        if (group.rank() == 0 && count == 10) continue;
        EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                     " float32 to rank 1, which receives "));
        EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
      }
    }
    if (group.rank() == 0) {
      EXPECT_THAT(group.Send(data.data(), 20000, Dtype::kFloat32, 1), IsOk());
    } else {
      EXPECT_THAT(group.Receive(data.data(), 20000, Dtype::kFloat32, 0),
                  ComesFrom(0));
    }
    EXPECT_THAT(group.Barrier(), IsOk());
  });
}

// Who gives up tells the other side, which does not wait as long.
TEST(SendReceive, NobodyWaitsForEver) {
  std::barrier both(2);
  RunRanks(Options(2), [&](Group& group) {
    std::vector<float> data(20000, 1);
    if (group.rank() == 0) {
      group.set_timeout(std::chrono::milliseconds(100));
      EXPECT_THAT(group.Send(data.data(), 20000, Dtype::kFloat32, 1, 3),
                  StatusIs(StatusCode::kDeadlineExceeded,
                           "send of 20000 float32 to rank 1, tag 3"));
      EXPECT_THAT(
          group.Receive(data.data(), 1, Dtype::kFloat32, kAnyRank, 4),
          StatusIs(StatusCode::kDeadlineExceeded, "from any rank, tag 4"));
      group.set_timeout(std::chrono::seconds(20));
      both.arrive_and_wait();
      EXPECT_THAT(group.Send(data.data(), 5, Dtype::kFloat32, 1, 3), IsOk());
    } else {
      both.arrive_and_wait();
      EXPECT_THAT(group.Receive(data.data(), 5, Dtype::kFloat32, 0, 3),
                  ComesFrom(0));
    }
    EXPECT_THAT(group.Barrier(), IsOk());
  });
}

TEST(SendReceive, LostRanksAreNamedAndWhatTheySentIsTaken) {
  std::barrier both(3);
  RunRanks(Options(3), [&](Group& group) {
    std::vector<float> data(20000, 1);
    if (group.rank() == 2) {
      EXPECT_THAT(group.Send(data.data(), 5, Dtype::kFloat32, 0), IsOk());
      both.arrive_and_wait();
      return;  // closes
    }
    both.arrive_and_wait();
    if (group.rank() == 1) {
      EXPECT_THAT(group.Send(data.data(), 20000, Dtype::kFloat32, 2),
                  StatusIs(StatusCode::kUnavailable, "rank 2 is lost"));
      return;
    }
    EXPECT_THAT(group.Receive(data.data(), 5, Dtype::kFloat32, 2),
                ComesFrom(2));
    const auto status =
        group.Receive(data.data(), 5, Dtype::kFloat32, 2).status();
    EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, "rank 2 is lost"));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied);
    EXPECT_THAT(group.Receive(data.data(), 5, Dtype::kFloat32, kAnyRank),
                StatusIs(StatusCode::kUnavailable, "is lost"));
  });
}

TEST(SendReceive, WrongRanksAndGroupsWithoutAreRefused) {
  RunRanks(Options(2), [](Group& group) {
    float x = 0;
    for (const int rank : {2, -2, group.rank()}) {
      EXPECT_THAT(group.Send(&x, 1, Dtype::kFloat32, rank),
                  StatusIs(StatusCode::kInvalidArgument, "of 2"));
      EXPECT_THAT(group.Receive(&x, 1, Dtype::kFloat32, rank),
                  StatusIs(StatusCode::kInvalidArgument, "of 2"));
    }
  });
  GroupOptions options = Options(1);
  options.sends = false;
  RunRanks(options, [](Group& group) {
    float x = 0;
    EXPECT_THAT(group.Send(&x, 1, Dtype::kFloat32, 0),
                StatusIs(StatusCode::kFailedPrecondition, "sends"));
  });
}

}  // namespace
}  // namespace telegrad::testing
