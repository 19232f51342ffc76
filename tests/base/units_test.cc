#include "base/units.h"

#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::StatusIs;

TEST(Units, BytesHaveDecimalAndBinarySuffixes) {
  EXPECT_EQ(ParseBytes("4096").value(), 4096);
  EXPECT_EQ(ParseBytes("64KiB").value(), 65536);
  EXPECT_EQ(ParseBytes("1.5MB").value(), 1500000);
  EXPECT_THAT(ParseBytes("-1"),
              StatusIs(absl::StatusCode::kInvalidArgument, "-1"));
  EXPECT_THAT(ParseBytes("much"),
              StatusIs(absl::StatusCode::kInvalidArgument, "much"));
  EXPECT_FALSE(ParseBytes("nan").ok());
  EXPECT_FALSE(ParseBytes("1e30").ok());
}

TEST(Units, LinkRatesAreBytesPerSecond) {
  EXPECT_EQ(ParseLinkRate("1gbit").value(), 125e6);
  EXPECT_EQ(ParseLinkRate("2.5Gbit/s").value(), 312.5e6);
  EXPECT_EQ(ParseLinkRate("none").value(), 0);
  EXPECT_THAT(ParseLinkRate("fast"),
              StatusIs(absl::StatusCode::kInvalidArgument, "fast"));
  EXPECT_FALSE(ParseLinkRate("0gbit").ok());
}

TEST(Units, FormattedBytesAreShort) {
  EXPECT_EQ(FormatBytes(17), "17 B");
  EXPECT_EQ(FormatBytes(1724320), "1.72 MB");
  EXPECT_EQ(FormatBytes(107770), "108 kB");
  EXPECT_EQ(FormatBytes(999999), "1.00 MB");
}

TEST(ExitCode, TravelsInAStatus) {
  const absl::Status status = WithExitCode(
      ExitCode::kMismatch, absl::FailedPreconditionError("t 0.5 and 0.25"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("x")), ExitCode::kIntegrity);
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kOk);
}

}  // namespace
}  // namespace telegrad
