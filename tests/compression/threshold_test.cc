#include "compression/threshold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::StatusIs;
using Kind = ThresholdSpec::Kind;

TEST(Threshold, TextNamesItsUnit) {
  EXPECT_EQ(ParseThreshold("auto")->kind, Kind::kAuto);
  EXPECT_EQ(ParseThreshold("0.5")->kind, Kind::kAbsolute);
  EXPECT_EQ(FixedThreshold(*ParseThreshold("0.5"), 256), 0.5f);
  // MXNet's 0.5 on gradients summed over 256 samples.
  EXPECT_EQ(FixedThreshold(*ParseThreshold("0.5:batch"), 256), 0.5f / 256);
  EXPECT_EQ(ToString(*ParseThreshold("0.5:batch")), "0.5:batch");
  for (const char* bad : {"", "0", "-1", "nan", "inf", "1:foo", "1e-60", "x"}) {
    EXPECT_THAT(ParseThreshold(bad),
                StatusIs(absl::StatusCode::kInvalidArgument, "0.5:batch"))
        << bad;
  }
}

TEST(Threshold, ProposalIsTheNearestPowerOfTwo) {
  EXPECT_EQ(ProposeScale(1.0), 0);
  EXPECT_EQ(ProposeScale(4.0), 1);  // rms 2
  EXPECT_EQ(ProposeScale(2.1), 1);  // rms 1.449 > sqrt(2)
  EXPECT_EQ(ProposeScale(1.9), 0);  // rms 1.378 < sqrt(2)
  EXPECT_EQ(ProposeScale(0x1p-20), -10);
  EXPECT_EQ(ScaleThreshold(-10), 0x1p-10f);
}

TEST(Threshold, NothingToProposeForZeroAndNonsense) {
  EXPECT_EQ(ProposeScale(0), kNoScale);
  EXPECT_EQ(ProposeScale(-1), kNoScale);
  EXPECT_EQ(ProposeScale(std::numeric_limits<double>::quiet_NaN()), kNoScale);
  EXPECT_EQ(ProposeScale(std::numeric_limits<double>::infinity()), kNoScale);
  EXPECT_EQ(ProposeScale(1e300), kMaxScale);
  EXPECT_EQ(ProposeScale(1e-300), kMinScale);
}

}  // namespace
}  // namespace telegrad
