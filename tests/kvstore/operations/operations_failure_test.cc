#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "base/exit_code.h"
#include "tests/kvstore/operations/operations_ranks.h"

// What one rank does wrong, or does not do.
namespace telegrad::testing {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

const std::vector<float> kOnes(6, 1);

TEST(WrongRequests, AreRefusedAtOnce) {
  RunOperations(2, [](Operations& operations) {
    const auto refused = [&](StatusCode code, const char* text,
                             const std::function<void(Submission&)>& change,
                             Kind kind = Kind::kAllreduce) {
      const auto wanted = Want(kind, "x", kOnes);
      change(*wanted);
      EXPECT_THAT(operations.Submit(wanted), StatusIs(code, text));
    };
    constexpr StatusCode kArgument = StatusCode::kInvalidArgument;
    refused(kArgument, "a name of 0 bytes",
            [](Submission& it) { it.request.name = ""; });
    refused(StatusCode::kInvalidArgument, "process set 9",
            [](Submission& it) { it.request.set = 9; });
    refused(
        kArgument, "splits [1, 4] of 6 rows for 2 ranks",
        [](Submission& it) {
          it.request.splits = {1, 4};
        },
        Kind::kAlltoall);
    refused(
        kArgument, "splits [-1, 7]",
        [](Submission& it) {
          it.request.splits = {-1, 7};
        },
        Kind::kAlltoall);
    refused(
        kArgument, "splits [6]",
        [](Submission& it) { it.request.splits = {6}; }, Kind::kAlltoall);
    refused(
        kArgument, "root 2 is none of the ranks 0, 1",
        [](Submission& it) { it.request.root = 2; }, Kind::kBroadcast);
    refused(
        kArgument, "without dimensions",
        [](Submission& it) { it.request.shape = {}; }, Kind::kAllgather);
    refused(kArgument, "bool has no average", [](Submission& it) {
      it.request.dtype = Dtype::kBool;
      it.request.op = Op::kAverage;
    });
    refused(kArgument, "op adasum", [](Submission& it) {
      it.request.dtype = Dtype::kInt32;
      it.request.op = Op::kAdasum;
    });
    refused(kArgument, "both are 0",
            [](Submission& it) { it.request.group = 4; });
    EXPECT_THAT(operations.AddProcessSet({1, 0}),
                StatusIs(kArgument, "1, 0: they rise"));
    EXPECT_THAT(operations.AddProcessSet({0, 2}), StatusIs(kArgument, "0, 2"));
    EXPECT_THAT(operations.AddProcessSet({0, 1}),
                StatusIs(StatusCode::kInvalidArgument, "process set 0"));
    EXPECT_THAT(operations.RemoveProcessSet(0),
                StatusIs(StatusCode::kInvalidArgument, "stays"));
  });
}

TEST(WrongRequests, NamesOfOnesUnderWayAreRefused) {
  RunOperations(2,
                [](Operations& operations) {
                  const auto first =
                      operations.Submit(Want(Kind::kAllreduce, "x", kOnes));
                  // The other rank may have told its own one, so this may have
                  // ended.
                  const auto second =
                      operations.Submit(Want(Kind::kAllreduce, "x", kOnes));
                  if (!second.ok()) {
                    EXPECT_THAT(second,
                                StatusIs(StatusCode::kFailedPrecondition,
                                         "allreduce \"x\": one of this name"));
                  }
                  EXPECT_THAT(WaitFor(operations, *first), IsOk());
                },
                {.cycle = std::chrono::seconds(1)});
}

TEST(WrongRequests, AProcessSetWithoutThisRank) {
  RunOperations(3, [](Operations& operations) {
    const int set = *operations.AddProcessSet({0, 2});
    const auto wanted = Want(Kind::kAllreduce, "x", kOnes);
    wanted->request.set = set;
    if (operations.rank() == 1) {
      EXPECT_THAT(operations.Submit(wanted),
                  StatusIs(StatusCode::kInvalidArgument,
                           "of ranks 0, 2 is without this rank"));
    } else {
      EXPECT_THAT(Do<float>(operations, wanted), ::testing::Each(2));
    }
    // Who leaves ends what the others have under way.
    const std::vector<float> none;
    Do<float>(operations, Want(Kind::kBarrier, "all are done", none));
  });
}

TEST(Handles, AreKnownUntilTheirRelease) {
  RunOperations(1, [](Operations& operations) {
    const int64_t handle =
        *operations.Submit(Want(Kind::kAllreduce, "x", kOnes));
    ResultOf<float>(operations, handle);
    EXPECT_THAT(operations.queue().Poll(handle),
                StatusIs(StatusCode::kInvalidArgument, "was waited for"));
    EXPECT_THAT(operations.queue().Result(99),
                StatusIs(StatusCode::kInvalidArgument, "was never given"));
  });
}

// All ranks have the same error, and go on.
TEST(Differences, EndThatOperationOnAllRanks) {
  RunOperations(3, [](Operations& operations) {
    const bool differs = operations.rank() == 1;
    const auto both = [&](const char* text,
                          const std::function<void(Submission&)>& change,
                          Kind kind = Kind::kAllreduce) {
      const auto wanted = Want(kind, "x", kOnes);
      if (differs) change(*wanted);
      const absl::Status error = ErrorOf(operations, wanted);
      EXPECT_EQ(ExitCodeOf(error), ExitCode::kMismatch) << error;
      EXPECT_TRUE(absl::StrContains(error.message(), text)) << error;
    };
    both("rank 0 has shape [6], rank 1 has shape [2, 3]", [](Submission& it) {
      it.request.shape = {2, 3};
    });
    both("rank 0 has type float32, rank 1 has type int32",
         [](Submission& it) { it.request.dtype = Dtype::kInt32; });
    both("rank 0 has op sum, rank 1 has op max",
         [](Submission& it) { it.request.op = Op::kMax; });
    both(
        "rank 0 has root 0, rank 1 has root 2",
        [](Submission& it) { it.request.root = 2; }, Kind::kBroadcast);
    both("rank 0 has operation allreduce, rank 1 has operation allgather",
         [](Submission& it) { it.request.kind = Kind::kAllgather; });
    EXPECT_EQ(Do<float>(operations, Want(Kind::kAllreduce, "x", kOnes))[0], 3);
  });
}

TEST(Differences, OfOptionsAreFoundAtTheStart) {
  Meeting meeting(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions mine = InprocOptions(2);
      mine.rank = rank;
      auto group = Group::Make(mine, meeting.ExchangeOf(rank));
      ASSERT_THAT(group, IsOk());
      EXPECT_THAT(
          Operations::Make(*std::move(group), {.fusion_bytes = 100 + rank})
              .status(),
          StatusIs(StatusCode::kFailedPrecondition,
                   "rank 0 has fusion_bytes 100 and cache_capacity "
                   "1024, rank 1 has fusion_bytes 101"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MissingRequests, EndAtTheDeadlineWithNames) {
  operations::Options options;
  options.stall_warning = milliseconds(40);
  options.stall_deadline = milliseconds(100);
  std::barrier given_up(3);
  RunOperations(
      3,
      [&](Operations& operations) {
        if (operations.rank() != 1) {
          EXPECT_THAT(ErrorOf(operations, Want(Kind::kAllreduce, "x", kOnes)),
                      StatusIs(StatusCode::kDeadlineExceeded,
                               "ranks 0, 2 submitted it, rank 1 did not"));
        }
        given_up.arrive_and_wait();
        EXPECT_EQ(Do<float>(operations, Want(Kind::kAllreduce, "y", kOnes))[0],
                  3);
      },
      options);
}

TEST(MissingRequests, CanBeCancelledForAll) {
  std::barrier submitted(2), cancelled(3);
  RunOperations(3, [&](Operations& operations) {
    const int rank = operations.rank();
    if (rank > 0) {
      const auto open = operations.Submit(Want(Kind::kAllreduce, "x", kOnes));
      ASSERT_THAT(open, IsOk());
      submitted.arrive_and_wait();
      if (rank == 2) {
        EXPECT_THAT(operations.queue().Cancel(*open), IsOk());
      }
      const absl::Status error = WaitFor(operations, *open);
      EXPECT_THAT(error, StatusIs(StatusCode::kCancelled,
                                  "\"x\" was cancelled by rank 2"));
      EXPECT_EQ(ExitCodeOf(error), ExitCode::kCancelled);
      EXPECT_THAT(operations.queue().Cancel(*open), IsOk());  // too late
      EXPECT_FALSE(operations.queue().Cancel(99).ok());
    }
    cancelled.arrive_and_wait();
    EXPECT_EQ(Do<float>(operations, Want(Kind::kAllreduce, "x", kOnes))[0], 3);
  });
}

TEST(TheEnd, IsAgreedOnAndNamesWhoEnds) {
  std::barrier submitted(2);
  RunOperations(2, [&](Operations& operations) {
    if (operations.rank() == 1) return submitted.arrive_and_wait(), void();
    const auto open = operations.Submit(Want(Kind::kAllreduce, "x", kOnes));
    ASSERT_THAT(open, IsOk());
    submitted.arrive_and_wait();
    EXPECT_THAT(WaitFor(operations, *open),
                StatusIs(StatusCode::kFailedPrecondition,
                         "rank 1 has ended the operations"));
    EXPECT_THAT(operations.Submit(Want(Kind::kAllreduce, "y", kOnes)),
                StatusIs(StatusCode::kFailedPrecondition, "rank 1 has ended"));
  });
}

TEST(LostRanks, EndAllHandlesByName) {
  RunOperations(
      3,
      [](Operations& operations) {
        const absl::Status error =
            ErrorOf(operations, Want(Kind::kAllreduce, "x", kOnes));
        EXPECT_EQ(error.code(), StatusCode::kUnavailable) << error;
        EXPECT_TRUE(absl::StrContains(error.message(), "rank 2")) << error;
        EXPECT_THAT(operations.Submit(Want(Kind::kAllreduce, "y", kOnes)),
                    StatusIs(StatusCode::kUnavailable, "rank 2"));
      },
      {}, /*lost=*/2);
}

TEST(NotANumber, ComesOutOfSumsOnAllRanks) {
  RunOperations(2, [](Operations& operations) {
    std::vector<float> values(3, 1);
    if (operations.rank() == 1) {
      values[1] = std::numeric_limits<float>::quiet_NaN();
    }
    const auto got = Do<float>(operations, Want(Kind::kAllreduce, "x", values));
    EXPECT_TRUE(std::isnan(got[1]));
    EXPECT_EQ(got[2], 2);
  });
}

}  // namespace
}  // namespace telegrad::testing
