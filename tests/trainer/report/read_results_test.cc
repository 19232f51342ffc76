#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "tests/testing/status_matchers.h"
#include "trainer/report/results.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunSummary MakeFinished(const std::string& setting, uint64_t seed) {
  RunSummary run;
  run.setting = setting;
  run.seed = seed;
  run.workers = 2;
  run.steps = 2;
  run.loss = 0.5;
  run.step_seconds_p50 = 0.1;
  run.data = "digits";
  run.jobs = 3;
  run.identity = {{"telegrad", "1.2.3"}, {"--lr", "0.1"}};
  run.tensors = {{.tensor = "fc1.weight", .elements = 7}};
  run.points = {{.step = 1, .test_loss = 0.25, .test_accuracy = 0.5},
                {.step = 2, .train_loss = 0.5}};
  return run;
}

class ReadResultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "read_results_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  void WriteBoth(const RunSummary& run) const {
    ASSERT_THAT(WriteResults(folder_, {run}, ""), IsOk());
  }
  void Harm(const std::string& name,
            const std::function<void(std::string&)>& change) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(file), {});
    change(text);
    Write(name, text);
  }
  void ExpectWrong(const std::string& name, const std::string& what) const {
    const auto read = ReadResults(folder_);
    EXPECT_THAT(read, StatusIs(absl::StatusCode::kInvalidArgument, what));
    EXPECT_THAT(read.status().message(), HasSubstr(folder_ + "/" + name));
  }

  std::string folder_;
};

TEST_F(ReadResultsTest, WhatWasWrittenComesBackWithItsPoints) {
  const std::vector<RunSummary> runs = {MakeFinished("2bit", 1),
                                        MakeFinished("none", ~uint64_t{0}),
                                        MakeFinished("2bit", 0)};
  ASSERT_THAT(WriteResults(folder_, runs, ""), IsOk());
  const auto read = ReadResults(folder_);
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->size(), runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(ToJson((*read)[i]), ToJson(runs[i]));
    EXPECT_EQ((*read)[i].identity, runs[i].identity);
    EXPECT_EQ((*read)[i].jobs, 3);
    ASSERT_EQ((*read)[i].points.size(), 2u);
    EXPECT_EQ((*read)[i].points[0].test_accuracy, 0.5);
    EXPECT_EQ((*read)[i].points[1].train_loss, 0.5);
  }
}

TEST_F(ReadResultsTest, AFolderWithoutResultsHasNone) {
  for (const std::string& folder : {folder_, folder_ + "/absent"}) {
    const auto read = ReadResults(folder);
    ASSERT_THAT(read, IsOk());
    EXPECT_TRUE(read->empty());
  }
}

TEST_F(ReadResultsTest, ALineThatWasCutAndPointsOfOthersAreLeftOut) {
  WriteBoth(MakeFinished("2bit", 0));
  Harm("metrics.jsonl", [](std::string& text) {
    text = ToJson(MetricPoint(), "none", 0) + "\n" + text;
    text.resize(text.size() - 2);
  });
  const auto read = ReadResults(folder_);
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ((*read)[0].points.size(), 1u);
}

TEST_F(ReadResultsTest, HarmedFilesAreNamed) {
  WriteBoth(MakeFinished("2bit", 0));
  Harm("metrics.jsonl", [](std::string& text) { text.insert(0, "{}\n"); });
  ExpectWrong("metrics.jsonl", "line 1: field 'setting' is missing");
  std::filesystem::remove(folder_ + "/metrics.jsonl");
  ExpectWrong("metrics.jsonl", "No such file");
  for (const auto& [text, what] :
       {std::pair{"", "not a JSON array"},
        {"[{", "not a JSON array"},
        {"{}", "not a JSON array"},
        {"[1]", "run 1: not a JSON object"},
        {"[{}]", "run 1: field 'setting' is missing"}}) {
    Write("summary.json", text);
    ExpectWrong("summary.json", what);
  }
  std::filesystem::remove(folder_ + "/summary.json");
  std::filesystem::create_directory(folder_ + "/summary.json");
  ExpectWrong("summary.json", "is a folder");
}

TEST_F(ReadResultsTest, ValuesThatCannotBeAreRefused) {
  const auto expect_wrong = [this](auto change, const std::string& what) {
    RunSummary run = MakeFinished("2bit", 0);
    change(run);
    WriteBoth(run);
    ExpectWrong("summary.json", what);
  };
  expect_wrong([](RunSummary& run) { run.workers = 0; }, "'workers'");
  expect_wrong([](RunSummary& run) { run.servers = -1; }, "'servers'");
  expect_wrong([](RunSummary& run) { run.steps = -1; }, "'steps'");
  expect_wrong([](RunSummary& run) { run.setting = "\x1b[2J"; }, "'setting'");
  expect_wrong([](RunSummary& run) { run.setting = ""; }, "'setting'");
  expect_wrong([](RunSummary& run) { run.network = "a\nb"; }, "'network'");
  expect_wrong([](RunSummary& run) { run.data = "\x7f"; }, "'data'");
  expect_wrong([](RunSummary& run) { run.link = "\r"; }, "'link'");
  expect_wrong(
      [](RunSummary& run) {
        run.tensors[0].elements = std::numeric_limits<int64_t>::max();
      },
      "'tensors'");
  const RunSummary run = MakeFinished("2bit", 0);
  ASSERT_THAT(WriteResults(folder_, {run, run}, ""), IsOk());
  ExpectWrong("summary.json", "run 2: 2bit, seed 0 comes twice");
}

TEST(SharedMachine, TimesOfRunsSideBySideAreNotCompared) {
  std::vector<RunSummary> runs = {MakeFinished("none", 0),
                                  MakeFinished("2bit", 0)};
  EXPECT_THAT(SummarySentences(runs),
              HasSubstr("Up to 3 runs shared this machine: do not compare"));
  EXPECT_THAT(SummarySentences(runs), Not(HasSubstr("a step takes")));
  for (RunSummary& run : runs) run.jobs = 1;
  EXPECT_THAT(SummarySentences(runs), Not(HasSubstr("shared this machine")));
  EXPECT_THAT(SummarySentences(runs), HasSubstr("a step takes"));
}

TEST(ManySettings, AreToldTogether) {
  std::vector<RunSummary> runs = {MakeFinished("none", 0)};
  for (const char* setting : {"a", "b", "c", "d", "e", "f"}) {
    runs.push_back(MakeFinished(setting, 0));
  }
  for (RunSummary& run : runs) {
    run.accuracy = 0.99;
    run.push_raw_bytes = run.push_wire_bytes = 4000;
  }
  runs[1].push_wire_bytes /= 4;  // a: fewest bytes, but far below
  runs[1].accuracy = 0.9;
  runs[2].push_wire_bytes /= 2;
  runs[3].accuracy = 0.987;
  EXPECT_THAT(SummarySentences(runs),
              AllOf(HasSubstr("5 of 6 settings came within 0.3 points of "
                              "none's test accuracy, 99.00 %"),
                    HasSubstr("of these b sent the fewest bytes"),
                    HasSubstr("Points to none: a (-9.00).")));
}

}  // namespace
}  // namespace telegrad
