#include "trainer/networks/loss_scale.h"

#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

LossScale Of(const std::string& dtype, const std::string& text) {
  const auto scale = MakeLossScale(dtype, text);
  EXPECT_THAT(scale, IsOk()) << text;
  return scale.ok() ? *scale : LossScale();
}

TEST(LossScale, IsForFloat16Alone) {
  EXPECT_FALSE(Of("float32", "dynamic").is_used);
  EXPECT_EQ(Of("bfloat16", "dynamic").value, 1);
  EXPECT_TRUE(Of("float16", "1").is_used);
}

// The numbers of torch.cuda.amp.GradScaler, by its documentation.
TEST(LossScale, IsHalvedWhereGradientsOverflowAndDoubledAfterManySteps) {
  LossScale scale = Of("float16", "dynamic");
  EXPECT_EQ(scale.value, 65536);
  for (int i = 0; i < 1999; ++i) EXPECT_THAT(scale.Update(true, false), IsOk());
  EXPECT_EQ(scale.value, 65536);
  EXPECT_THAT(scale.Update(false, false), IsOk());
  EXPECT_EQ(scale.value, 32768);
  for (int i = 0; i < 1999; ++i) EXPECT_THAT(scale.Update(true, false), IsOk());
  EXPECT_EQ(scale.value, 32768);
  EXPECT_THAT(scale.Update(true, false), IsOk());
  EXPECT_EQ(scale.value, 65536);
  for (int i = 0; i < 4000; ++i) EXPECT_THAT(scale.Update(true, false), IsOk());
  EXPECT_EQ(scale.value, 262144);
}

TEST(LossScale, EndsTheRunWhereNoneHelps) {
  LossScale scale = Of("float16", "dynamic");
  for (int i = 0; i < 16; ++i) EXPECT_THAT(scale.Update(false, true), IsOk());
  EXPECT_EQ(scale.value, 1);
  const absl::Status status = scale.Update(false, true);
  EXPECT_THAT(status, StatusIs(StatusCode::kOutOfRange,
                               "--dtype float16 without a loss scale, either"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault);
}

TEST(LossScale, ThatIsGivenStaysAndLeavesStepsOutByPolicyOnly) {
  LossScale scale = Of("float16", "1024");
  for (int i = 0; i < 4000; ++i) EXPECT_THAT(scale.Update(true, false), IsOk());
  EXPECT_THAT(scale.Update(false, true), IsOk());
  EXPECT_EQ(scale.value, 1024);
  const absl::Status status = scale.Update(false, false);
  EXPECT_THAT(status,
              StatusIs(StatusCode::kOutOfRange, "with --loss-scale 1024"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault);
}

TEST(LossScale, IsAPowerOfTwo) {
  for (const char* text : {"", "0.5", "0", "-2", "3", "inf", "nan", "fast"}) {
    EXPECT_THAT(MakeLossScale("float16", text),
                StatusIs(StatusCode::kInvalidArgument, "--loss-scale '"))
        << text;
  }
}

}  // namespace
}  // namespace telegrad
