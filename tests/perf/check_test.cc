// That --check finds a wrong element: in what ranks got, one bit is changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "perf/network/collective_cases.h"
#include "perf/network/patterns.h"
#include "tests/kvstore/collective/collective_ranks.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::perf {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

constexpr size_t kCount = 1000;

const CollectiveCase kCases[] = {kAllreduceCase, kReduceScatterCase,
                                 kAllgatherCase, kBroadcastCase, kAlltoallCase};

GroupOptions RanksOf(int world_size) {
  GroupOptions options;
  options.transport.name = "inproc";
  options.world_size = world_size;
  return options;
}

// The top bit of the last byte of element `index`: its sign.
void FlipSign(Dtype type, size_t index, Bytes memory) {
  memory.data[(index + 1) * SizeOf(type) - 1] ^= std::byte{0x80};
}

void CheckOneRank(const CollectiveCase& which, Dtype type, Group& group) {
  const std::string context =
      absl::StrCat(which.name, " of ", ToString(type), ", rank ", group.rank());
  CollectiveData data(which, type, group.rank(), group.world_size(),
                      /*root=*/1, kCount);
  ASSERT_THAT(data.Call(group, kCount, {}), IsOk()) << context;
  ASSERT_THAT(data.Verify(kCount), IsOk()) << context;
  const size_t num_elems = data.result().size / SizeOf(type);
  ASSERT_GE(num_elems, kCount);
  for (const size_t wrong : {size_t{0}, size_t{501}, num_elems - 1}) {
    FlipSign(type, wrong, data.result());
    EXPECT_THAT(data.Verify(kCount),
                StatusIs(StatusCode::kDataLoss,
                         absl::StrCat("rank ", group.rank(), ": element ",
                                      wrong, " of ", num_elems)))
        << context;
    FlipSign(type, wrong, data.result());
  }
  EXPECT_THAT(data.Verify(kCount), IsOk()) << context;
}

TEST(Check, FindsAWrongElementOfEveryCollectiveAndType) {
  const GroupOptions options = RanksOf(3);
  testing::RunRanks(options, [](Group& group) {
    for (const CollectiveCase& which : kCases) {
      for (const Dtype type : {Dtype::kFloat32, Dtype::kFloat16,
                               Dtype::kBfloat16, Dtype::kInt32}) {
        CheckOneRank(which, type, group);
      }
    }
  });
}

TEST(Check, MoreMemoryThanThereIsIsRefused) {
  EXPECT_THAT(CollectiveData::CheckMemory(kAllgatherCase, Dtype::kFloat32, 2,
                                          size_t{1} << 50),
              StatusIs(StatusCode::kResourceExhausted, "smaller --size"));
  EXPECT_THAT(
      CollectiveData::CheckMemory(kAllgatherCase, Dtype::kFloat32, 2, kCount),
      IsOk());
}

TEST(Check, NamesBothValuesOfACollective) {
  const GroupOptions options = RanksOf(2);
  testing::RunRanks(options, [](Group& group) {
    CollectiveData data(kBroadcastCase, Dtype::kInt32, group.rank(), 2,
                        /*root=*/0, kCount);
    ASSERT_THAT(data.Call(group, kCount, {}), IsOk());
    data.result().data[4 * 8] ^= std::byte{64};  // rank 0 has 56 % 3
    EXPECT_THAT(data.Verify(kCount),
                StatusIs(StatusCode::kDataLoss,
                         "element 8 of 1000 of broadcast is 66, "
                         "not 2"));
  });
}

TEST(Check, FindsAnElementThatNobodyWrote) {
  const GroupOptions options = RanksOf(1);
  testing::RunRanks(options, [](Group&) {
    CollectiveData data(kAllgatherCase, Dtype::kBfloat16, 0, 1, 0, 10);
    EXPECT_THAT(data.Verify(10),
                StatusIs(StatusCode::kDataLoss, "element 0 of 10"));
  });
}

TEST(Check, FindsAWrongByteOfAMessage) {
  Buffer memory(kCount);
  FillBytes(3, memory.view());
  EXPECT_THAT(VerifyBytes(1, 3, memory.view()), IsOk());
  EXPECT_THAT(VerifyBytes(1, 4, memory.view()),
              StatusIs(StatusCode::kDataLoss, "rank 1: byte "));
  for (const size_t wrong : {size_t{0}, size_t{333}, kCount - 1}) {
    const int right = static_cast<int>(memory.data()[wrong]);
    memory.data()[wrong] ^= std::byte{1};
    EXPECT_THAT(VerifyBytes(1, 3, memory.view()),
                StatusIs(StatusCode::kDataLoss,
                         absl::StrCat("rank 1: byte ", wrong, " of 1000 is ",
                                      right ^ 1, ", not ", right)));
    memory.data()[wrong] ^= std::byte{1};
  }
}

}  // namespace
}  // namespace telegrad::perf
