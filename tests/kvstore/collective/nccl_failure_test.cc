#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>

#include "base/exit_code.h"
#include "kvstore/collective/nccl/nccl_group.h"
#include "tests/kvstore/collective/collective_ranks.h"
#include "tests/kvstore/collective/difference.h"
#include "tests/kvstore/collective/fake_nccl.h"

// NCCL groups that cannot be made, disagree, lose ranks or never end.
namespace telegrad::testing {
namespace {

using absl::StatusCode;
using collective::NcclGroup;

GroupOptions Options(int ranks) {
  GroupOptions options;
  options.backend = "nccl";
  options.transport.name = "inproc";
  options.world_size = ranks;
  options.timeout = std::chrono::seconds(20);
  return options;
}

absl::StatusOr<std::unique_ptr<Group>> MakeFake(
    const GroupOptions& options, const AddressExchange& exchange) {
  return NcclGroup::Make(options, exchange, FakeNccl());
}

class NcclFailure : public ::testing::Test {
 protected:
  void SetUp() override { ResetFaults(); }
  void TearDown() override { EXPECT_EQ(Faults().num_streams, 0); }
};

class NcclDisagreement : public NcclFailure,
                         public ::testing::WithParamInterface<Difference> {};

TEST_P(NcclDisagreement, IsAnErrorOfAllRanksBeforeDataMove) {
  const Difference& difference = GetParam();
  std::barrier connected(3);  // nobody fails while others still connect
  RunRanks(
      Options(3),
      [&](Group& group) {
        std::vector<float> data(100, 1);
        connected.arrive_and_wait();
        const absl::Status status = group.rank() == 0
                                        ? difference.first(group, data.data())
                                        : difference.others(group, data.data());
        EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                     difference.first_says));
        EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                     difference.others_say));
        EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
        EXPECT_EQ(data, std::vector<float>(100, 1));
        EXPECT_EQ(group.Barrier(), status) << "the first error stays";
      },
      MakeFake);
  EXPECT_EQ(Faults().num_aborted, 3);
  EXPECT_EQ(Faults().num_destroyed, 0);
}

constexpr Dtype kFloat = Dtype::kFloat32;
const std::vector<size_t> kEven = {20, 20, 20};
const std::vector<size_t> kUneven = {20, 10, 30};

const std::vector<Difference> kDifferences = WithCommon({
    {"Layout",
     [](Group& g, float* d) { return g.Allgatherv(d, d + 30, kEven, kFloat); },
     [](Group& g, float* d) {
       return g.Allgatherv(d, d + 30, kUneven, kFloat);
     },
     "allgather of 60", "counts"},
});

INSTANTIATE_TEST_SUITE_P(Of, NcclDisagreement,
                         ::testing::ValuesIn(kDifferences),
                         [](const auto& param_info) {
                           return std::string(param_info.param.test_name);
                         });

TEST_F(NcclFailure, WithoutErrorsNothingIsAborted) {
  RunRanks(
      Options(3),
      [](Group& group) {
        EXPECT_EQ(group.info().name, "nccl");
        EXPECT_THAT(group.info().details, ::testing::HasSubstr("NCCL 2.28.9"));
        ASSERT_THAT(group.Barrier(), IsOk());
      },
      MakeFake);
  EXPECT_EQ(Faults().num_aborted, 0);
  EXPECT_EQ(Faults().num_destroyed, 3);
}

TEST_F(NcclFailure, LostRankIsNamedByAllOthers) {
  RunRanks(
      Options(4),
      [](Group& group) {
        std::vector<float> data(100, 1);
        // Goes away; others may hear of it before their barrier ends.
        absl::Status status = group.Barrier();
        if (group.rank() == 2) return;
        while (status.ok()) status = Sum(group, data.data(), data.size());
        EXPECT_THAT(status,
                    StatusIs(StatusCode::kUnavailable, "rank 2 is lost"));
        EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied);
      },
      MakeFake);
  EXPECT_EQ(Faults().num_aborted, 3);
}

TEST_F(NcclFailure, RankThatNcclLosesIsAnErrorOfAll) {
  Faults().loses_a_peer = 1;
  Faults().never_finishes = true;
  RunRanks(
      Options(3),
      [](Group& group) {
        std::vector<float> data(100, 1);
        const absl::Status status = Sum(group, data.data(), data.size());
        EXPECT_THAT(status,
                    StatusIs(StatusCode::kUnavailable, "the fake's error"));
        EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied);
        EXPECT_EQ(group.Barrier(), status);
      },
      MakeFake);
  EXPECT_EQ(Faults().num_aborted, 3);
}

TEST_F(NcclFailure, CallThatNcclRefusesIsAnErrorOfAll) {
  Faults().refuses_calls = 2;
  RunRanks(
      Options(3),
      [](Group& group) {
        std::vector<float> data(100, 1);
        const absl::Status status =
            group.Alltoall(data.data(), data.data() + 30, 10, kFloat);
        EXPECT_FALSE(status.ok());
        EXPECT_THAT(std::string(status.message()),
                    ::testing::HasSubstr("handing a collective over"));
        EXPECT_EQ(group.Barrier(), status);
      },
      MakeFake);
  EXPECT_EQ(Faults().num_aborted, 3);
}

TEST_F(NcclFailure, CollectiveThatNeverEndsIsAbortedAtTheDeadline) {
  Faults().never_finishes = true;
  GroupOptions options = Options(2);
  options.timeout = std::chrono::seconds(2);  // for making the group, too
  RunRanks(
      options,
      [](Group& group) {
        std::vector<float> data(100, 1);
        const absl::Status status = Sum(group, data.data(), data.size());
        EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                                     "its GPU to finish"));
        EXPECT_EQ(ExitCodeOf(status), ExitCode::kTimeout);
        EXPECT_EQ(group.Barrier(), status);
      },
      MakeFake);
  EXPECT_EQ(Faults().num_aborted, 2);
}

TEST_F(NcclFailure, NcclThatNeverConnectsIsAbortedAtTheDeadline) {
  Faults().never_connects = true;
  GroupOptions options = Options(1);
  options.timeout = std::chrono::milliseconds(100);
  Meeting meeting(1);
  EXPECT_THAT(
      MakeFake(options, meeting.ExchangeOf(0)),
      StatusIs(StatusCode::kDeadlineExceeded, "NCCL to connect all ranks"));
  EXPECT_EQ(Faults().num_aborted, 1);
}

TEST_F(NcclFailure, WrongArgumentsLeaveTheGroupWhole) {
  RunRanks(
      Options(2),
      [](Group& group) {
        std::vector<float> data(9, 1);
        const auto is_invalid = [](const char* text) {
          return StatusIs(StatusCode::kInvalidArgument, text);
        };
        EXPECT_THAT(group.Broadcast(data.data(), 9, kFloat, 2),
                    is_invalid("root 2 of 2 ranks"));
        EXPECT_THAT(Sum(group, data.data(), 9,
                        {.algorithm = CollectiveAlgorithm::kRing}),
                    is_invalid("algorithm ring"));
        EXPECT_THAT(Sum(group, nullptr, 9), is_invalid("null"));
        EXPECT_THAT(Sum(group, data.data(), SIZE_MAX), is_invalid("count"));
        EXPECT_THAT(group.Allgatherv(data.data(), data.data(), kEven, kFloat),
                    is_invalid("3 counts for 2 ranks"));
        EXPECT_THAT(group.Barrier(), IsOk());
      },
      MakeFake);
}

TEST_F(NcclFailure, HostMemoryAndThatOfOtherDevicesAreRefused) {
  GroupOptions options = Options(1);
  options.device = 3;  // the fake's memory is of device 0
  const auto refuses = [](Group& group) {
    float data = 1;
    EXPECT_THAT(Sum(group, &data, 1),
                StatusIs(StatusCode::kInvalidArgument, "backend \"host\""));
  };
  RunRanks(options, refuses, MakeFake);
  Faults().has_only_host_memory = true;
  RunRanks(Options(1), refuses, MakeFake);
}

TEST_F(NcclFailure, MissingDevicesAreNamed) {
  GroupOptions options = Options(1);
  options.device = 8;
  EXPECT_THAT(MakeFake(options, nullptr),
              StatusIs(StatusCode::kInvalidArgument, "device 8 of 8"));
  Faults().num_devices = 0;
  EXPECT_THAT(MakeFake(options, nullptr),
              StatusIs(StatusCode::kUnavailable, "no CUDA device"));
}

TEST_F(NcclFailure, MachineWithoutGpuSaysSo) {
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) == cudaSuccess && num_devices > 0) {
    GTEST_SKIP() << "there are " << num_devices << " GPUs";
  }
  const auto loaded = collective::LoadNccl(GroupOptions().nccl_library);
  if (!loaded.ok()) GTEST_SKIP() << loaded.status();
  EXPECT_THAT(Group::Make(Options(1), nullptr),
              StatusIs(StatusCode::kUnavailable, "no CUDA device"));
}

TEST_F(NcclFailure, MissingAndForeignLibrariesAreNamed) {
  GroupOptions options = Options(1);
  options.nccl_library = "libabsent.so.2";
  EXPECT_THAT(Group::Make(options, nullptr),
              StatusIs(StatusCode::kUnavailable, "libabsent.so.2"));
  EXPECT_THAT(Group::Make(options, nullptr),
              StatusIs(StatusCode::kUnavailable, "package libnccl2"));
  options.nccl_library = "libm.so.6";
  EXPECT_THAT(
      Group::Make(options, nullptr),
      StatusIs(StatusCode::kUnavailable, "libm.so.6 has no ncclGetVersion"));
}

TEST_F(NcclFailure, UnknownBackendNamesThoseThatThereAre) {
  GroupOptions options = Options(1);
  options.backend = "rccl";
  const auto made = Group::Make(options, nullptr);
  EXPECT_THAT(made, StatusIs(StatusCode::kNotFound, "\"rccl\""));
  EXPECT_THAT(made, StatusIs(StatusCode::kNotFound, "host: "));
  EXPECT_THAT(made, StatusIs(StatusCode::kNotFound, "nccl: "));
}

}  // namespace
}  // namespace telegrad::testing
