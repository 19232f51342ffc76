#include "trainer/checkpoint/cursor.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

// What is nested that deeply overflowed the stack of all workers.
TEST(Cursors, ThatAreNestedDeeplyAreRefused) {
  const std::string deep =
      std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_THAT(ParseCursor(absl::StrCat(
                  R"({"step":1,"epoch":0,"batch":0,"points":)", deep, "}")),
              StatusIs(StatusCode::kDataLoss, "cursor"));
}

TEST(Cursors, AreBounded) {
  const auto with = [](const char* step, const char* rest = "") {
    return ParseCursor(
        absl::StrCat(R"({"epoch":3,"batch":0,"step":)", step, rest, "}"));
  };
  ASSERT_THAT(with("5"), IsOk());
  EXPECT_EQ(with("5")->step, 5);
  for (const char* step : {"-1", "9223372036854775807", "18446744073709551615",
                           "1e3", "\"1\"", "null"}) {
    EXPECT_THAT(with(step), StatusIs(StatusCode::kDataLoss, "lacks step"));
  }
  const auto rest = with("5", R"(,"num_good":-7,"points":[{"epoch":1e99}],
      "traffic":{"push_raw":18446744073709551615},"seconds":"x")");
  ASSERT_THAT(rest, IsOk());
  EXPECT_EQ(rest->loss_scale.num_good, 0);
  EXPECT_EQ(rest->traffic.push_raw_bytes, 0);
  EXPECT_EQ(rest->points.at(0).epoch, 0);
}

}  // namespace
}  // namespace telegrad
