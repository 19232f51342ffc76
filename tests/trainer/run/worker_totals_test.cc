#include "trainer/run/worker_totals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

WorkerTotals SomeTotals() {
  WorkerTotals totals;
  totals.comm_wait_s = 0.5;
  totals.weights_sha256 = "abc";
  totals.step_seconds = {1, 2};
  totals.traffic.push_raw_bytes = 100;
  totals.traffic.push_wire_bytes = 10;
  return totals;
}

TEST(WorkerTotals, AreAddedUp) {
  RunSummary summary;
  std::vector<double> slowest = {0.5, 3};
  for (int i = 0; i < 2; ++i) {
    const auto given = AddTotals(ToText(SomeTotals()), summary, slowest);
    ASSERT_THAT(given, IsOk());
    EXPECT_EQ(given->weights_sha256, "abc");
  }
  EXPECT_EQ(summary.push_raw_bytes, 200);
  EXPECT_EQ(summary.push_wire_bytes, 20);
  EXPECT_EQ(summary.comm_wait_s, 1);
  EXPECT_EQ(slowest, (std::vector<double>{1, 3}));
}

// A number where a text belongs ended all workers.
TEST(WorkerTotals, ThatAnotherMadeAreAnErrorWithTheField) {
  RunSummary summary;
  std::vector<double> slowest;
  const std::string deep(100'000, '[');
  for (const std::string& text : {std::string(), std::string("[]"), deep,
                                  std::string("{}"), "{\"sha\":" + deep}) {
    EXPECT_FALSE(AddTotals(text, summary, slowest).ok()) << text.substr(0, 9);
  }
  const auto good = nlohmann::json::parse(ToText(SomeTotals()));
  for (const auto& [name, value] : good.items()) {
    for (const nlohmann::json& bad :
         {nlohmann::json::object(), nlohmann::json(true)}) {
      auto json = good;
      json[name] = bad;
      EXPECT_THAT(AddTotals(json.dump(), summary, slowest),
                  StatusIs(absl::StatusCode::kInvalidArgument, name));
    }
  }
  auto json = good;
  json["push_raw"] = UINT64_MAX;
  EXPECT_FALSE(AddTotals(json.dump(), summary, slowest).ok());
  json["push_raw"] = INT64_MAX;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(AddTotals(json.dump(), summary, slowest), IsOk());
  }
  EXPECT_EQ(summary.push_raw_bytes, INT64_MAX);
  json["wait"] = nullptr;  // JSON has no NaN
  EXPECT_THAT(AddTotals(json.dump(), summary, slowest), IsOk());
  EXPECT_TRUE(std::isnan(summary.comm_wait_s));
}

}  // namespace
}  // namespace telegrad
