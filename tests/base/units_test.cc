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
  EXPECT_EQ(ParseLink("1gbit").value().bytes_per_s, 125e6);
  EXPECT_EQ(ParseLink("2.5Gbit/s").value().bytes_per_s, 312.5e6);
  EXPECT_EQ(ParseLink("1gbit").value().latency_s, 0);
  for (const char* none : {"none", ""}) {
    EXPECT_EQ(ParseLink(none).value().bytes_per_s, 0);
    EXPECT_EQ(ParseLink(none).value().latency_s, 0);
  }
}

TEST(Units, LinksMayHaveALatency) {
  EXPECT_EQ(ParseLink("1gbit,5ms").value().bytes_per_s, 125e6);
  EXPECT_DOUBLE_EQ(ParseLink("1gbit,5ms").value().latency_s, 5e-3);
  EXPECT_EQ(ParseLink("none,200us").value().bytes_per_s, 0);
  EXPECT_DOUBLE_EQ(ParseLink("none,200us").value().latency_s, 200e-6);
  EXPECT_EQ(ParseLink("0.5s").value().bytes_per_s, 0);
  EXPECT_EQ(ParseLink("0.5s").value().latency_s, 0.5);
}

TEST(Units, WhatIsNoLinkIsNamed) {
  for (const char* wrong :
       {"fast", "0gbit", "1gbit,", ",5ms", "5ms,1gbit", "1gbit,fast", "5",
        "-5ms", "1gbit,5", "1gbit,5ms,1ms", "1gbit,none", "nanms"}) {
    EXPECT_THAT(ParseLink(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument, wrong))
        << wrong;
  }
  EXPECT_THAT(ParseLink("1gbit,3s"),
              StatusIs(absl::StatusCode::kInvalidArgument, "at most 1 s"));
}

TEST(Units, FormattedBytesAreShort) {
  EXPECT_EQ(FormatBytes(17), "17 B");
  EXPECT_EQ(FormatBytes(1724320), "1.72 MB");
  EXPECT_EQ(FormatBytes(107770), "108 kB");
  EXPECT_EQ(FormatBytes(999999), "1.00 MB");
}

TEST(Units, FormattedSecondsHaveTheUnitThatSuits) {
  EXPECT_EQ(FormatSeconds(1234.5), "1234 s");
  EXPECT_EQ(FormatSeconds(13.7), "13.7 s");
  EXPECT_EQ(FormatSeconds(0.9996), "1 s");
  EXPECT_EQ(FormatSeconds(0.00137), "1.37 ms");
  EXPECT_EQ(FormatSeconds(15e-6), "15 us");
  EXPECT_EQ(FormatSeconds(0), "0 us");
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
