#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/collective/nccl/greeting.h"
#include "kvstore/collective/nccl/nccl_group.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using collective::Greet;
using collective::ReceiveGreetings;
using ::testing::ElementsAre;

TEST(NcclTypes, AreThoseOfNccl) {
  using collective::NcclOp;
  using collective::NcclType;
  EXPECT_EQ(NcclType(Dtype::kFloat32), ncclFloat32);
  EXPECT_EQ(NcclType(Dtype::kFloat16), ncclFloat16);
  EXPECT_EQ(NcclType(Dtype::kBfloat16), ncclBfloat16);
  EXPECT_EQ(NcclType(Dtype::kInt32), ncclInt32);
  EXPECT_EQ(NcclType(Dtype::kInt64), ncclInt64);
  EXPECT_EQ(NcclType(Dtype::kFloat64), ncclFloat64);
  EXPECT_EQ(NcclType(Dtype::kUint8), ncclUint8);
  EXPECT_EQ(NcclType(Dtype::kInt8), ncclInt8);
  EXPECT_EQ(NcclType(Dtype::kBool), ncclUint8);
  EXPECT_EQ(NcclOp(ReduceOp::kSum, Dtype::kFloat32), ncclSum);
  EXPECT_EQ(NcclOp(ReduceOp::kMin, Dtype::kFloat32), ncclMin);
  EXPECT_EQ(NcclOp(ReduceOp::kMax, Dtype::kFloat32), ncclMax);
  EXPECT_EQ(NcclOp(ReduceOp::kProduct, Dtype::kInt8), ncclProd);
  EXPECT_EQ(NcclOp(ReduceOp::kSum, Dtype::kBool), ncclMax);
  EXPECT_EQ(NcclOp(ReduceOp::kProduct, Dtype::kBool), ncclMin);
}

constexpr int kVersion = 22809;

ncclUniqueId SomeId() {
  ncclUniqueId id = {};
  for (size_t i = 0; i < sizeof(id.internal); ++i) {
    id.internal[i] = static_cast<char>(i * 37);
  }
  return id;
}

absl::Status Hear(std::vector<std::string> texts) {
  ncclUniqueId id = {};
  return ReceiveGreetings(kVersion, &texts, &id);
}

TEST(NcclGreeting, CarriesTheIdAndTheAddresses) {
  const ncclUniqueId sent = SomeId();
  std::vector<std::string> texts = {Greet(kVersion, &sent, "here\nand there"),
                                    Greet(kVersion, nullptr, "")};
  ncclUniqueId id = {};
  ASSERT_THAT(ReceiveGreetings(kVersion, &texts, &id), IsOk());
  EXPECT_TRUE(std::equal(id.internal, id.internal + sizeof(id.internal),
                         sent.internal));
  EXPECT_THAT(texts, ElementsAre("here\nand there", ""));
}

TEST(NcclGreeting, WithoutAProperIdIsRefused) {
  const ncclUniqueId sent = SomeId();
  const std::string good = Greet(kVersion, &sent, "x");
  ASSERT_THAT(Hear({good}), IsOk());
  for (const std::string& digits :
       {std::string("-"), std::string(254, '0'), std::string(258, '0'),
        absl::StrCat(std::string(255, '0'), "g"), std::string(256, 'A')}) {
    EXPECT_THAT(Hear({absl::StrCat("nccl ", kVersion, " ", digits, "\nx")}),
                StatusIs(StatusCode::kInvalidArgument, "rank 0 gave an id"));
  }
}

TEST(NcclGreeting, OfOtherVersionsAndBackendsIsAMismatch) {
  const ncclUniqueId sent = SomeId();
  const std::string good = Greet(kVersion, &sent, "x");
  const absl::Status other = Hear({good, Greet(22703, nullptr, "x")});
  EXPECT_THAT(other, StatusIs(StatusCode::kFailedPrecondition,
                              "rank 1 has NCCL's version 22703"));
  EXPECT_THAT(other, StatusIs(StatusCode::kFailedPrecondition, "2.28.9"));
  EXPECT_EQ(ExitCodeOf(other), ExitCode::kMismatch);
  for (const char* text : {"", "\n", "inproc:7", "nccl 22809", "nccl\n22809",
                           "nccl 22809 - -\nx", "tcp 22809 -\nx"}) {
    const absl::Status none = Hear({good, text});
    EXPECT_THAT(none,
                StatusIs(StatusCode::kFailedPrecondition, "rank 1 has no NCCL"))
        << text;
    EXPECT_EQ(ExitCodeOf(none), ExitCode::kMismatch);
  }
}

}  // namespace
}  // namespace telegrad::testing
