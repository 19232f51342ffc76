#include "trainer/report/results.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "base/folder.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

RunSummary MakeRun(const std::string& setting, uint64_t seed, double accuracy,
                   int64_t wire) {
  RunSummary run;
  run.setting = setting;
  run.seed = seed;
  run.workers = 2;
  run.servers = 1;
  run.accuracy = accuracy;
  run.loss = 0.05;
  run.steps = 100;
  run.seconds = 10;
  run.samples_per_s = 1280;
  run.push_raw_bytes = 160'000'000;
  run.push_wire_bytes = wire;
  run.pull_raw_bytes = 160'000'000;
  run.pull_wire_bytes = wire;
  run.comm_wait_s = 5;
  run.weights_sha256 = "ab";
  run.network = "le<net";
  run.data = "digits";
  for (int i = 1; i <= 10; ++i) {
    run.points.push_back({.epoch = 0,
                          .step = 10 * i,
                          .seconds = 1.0 * i,
                          .train_loss = 2.0 / i,
                          .train_accuracy = 1 - 0.5 / i,
                          .test_loss = i % 5 ? -1 : 1.0 / i,
                          .test_accuracy = i % 5 ? -1 : 0.9,
                          .wire_bytes = wire * 2 * i / 10});
  }
  return run;
}

std::vector<RunSummary> MakeRuns() {
  return {MakeRun("none", 0, 0.990, 160'000'000),
          MakeRun("2bit", 0, 0.985, 10'000'000),
          MakeRun("none", 1, 0.992, 160'000'000),
          MakeRun("2bit", 1, 0.987, 10'000'000)};
}

TEST(Results, SummariesComeBackFromJson) {
  RunSummary run = MakeRun("2bit", ~uint64_t{0}, 0.98, 7);
  run.loss = std::numeric_limits<double>::quiet_NaN();
  run.worker_peak_bytes = int64_t{1} << 40;
  const auto read = RunSummaryFromJson(ToJson(run));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->setting, "2bit");
  EXPECT_EQ(read->seed, ~uint64_t{0});
  EXPECT_EQ(read->accuracy, 0.98);
  EXPECT_TRUE(std::isnan(read->loss));
  EXPECT_EQ(read->network, "le<net");
  EXPECT_EQ(read->worker_peak_bytes, run.worker_peak_bytes);
  EXPECT_EQ(ToJson(*read), ToJson(run));
}

TEST(Results, DecisionsAreInTheSummaryAndOnThePage) {
  RunSummary run = MakeRun("auto", 3, 0.98, 7);
  EXPECT_THAT(ReportHtml({run}, ""), Not(HasSubstr("<h2>What explains")));
  run.decisions = {"auto, step 9: compression off: 9 >= 8 < \"x\"",
                   "auto, step 70: measuring anew"};
  const auto read = RunSummaryFromJson(ToJson(run));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->decisions, run.decisions);
  const std::string page = ReportHtml({run}, "");
  EXPECT_THAT(page, HasSubstr("<h2>What explains the numbers</h2>"));
  EXPECT_THAT(page, HasSubstr("<b>auto:</b> auto, step 9: compression off: 9 "
                              "&gt;= 8 &lt; &quot;x&quot;</li>"));
  EXPECT_THAT(page, HasSubstr("auto, step 70: measuring anew</li>"));
}

TEST(Results, ThePlanIsInTheSummaryAndOnThePageOnce) {
  RunSummary run = MakeRun("none", 0, 0.98, 7);
  EXPECT_THAT(ReportHtml({run}, ""), Not(HasSubstr("<h2>Plan</h2>")));
  run.plan = {.digest = "12ab",
              .decisions = {{"link", "1 Gb/s < \"2\"", "given"}}};
  const auto read = RunSummaryFromJson(ToJson(run));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->plan, run.plan);
  const std::string page = ReportHtml({run, run}, "");
  EXPECT_THAT(page, HasSubstr("<h2>Plan</h2>"));
  EXPECT_THAT(page, HasSubstr("1 Gb/s &lt; &quot;2&quot;"));
  EXPECT_EQ(page.find("&quot;2&quot;"), page.rfind("&quot;2&quot;"));
}

TEST(Results, PlansThatDifferHaveTheirSettingsNames) {
  RunSummary none = MakeRun("none", 0, 0.98, 7);
  RunSummary two_bit = MakeRun("2bit", 0, 0.98, 7);
  none.plan = {.digest = "12", .decisions = {{"compression", "off", ""}}};
  two_bit.plan = {.digest = "34", .decisions = {{"compression", "2bit", ""}}};
  const std::string page = ReportHtml({none, two_bit}, "");
  for (const char* row : {"off</td><td data-label=\"settings\">none<",
                          "2bit</td><td data-label=\"settings\">2bit<"}) {
    EXPECT_THAT(page, HasSubstr(row));
  }
}

TEST(Results, WrongJsonNamesTheField) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(RunSummaryFromJson("[1]"), StatusIs(code, "not a JSON object"));
  EXPECT_THAT(RunSummaryFromJson("{\"setting\""), StatusIs(code, "JSON"));
  EXPECT_THAT(RunSummaryFromJson("{}"), StatusIs(code, "'setting' is missing"));
  EXPECT_THAT(RunSummaryFromJson(R"({"setting":"a","seed":-1})"),
              StatusIs(code, "'seed'"));
  EXPECT_THAT(RunSummaryFromJson(R"({"setting":"a","seed":1,"workers":1e99})"),
              StatusIs(code, "'workers'"));
  std::string text = ToJson(MakeRun("a", 0, 1, 7));
  text.insert(1, R"("decisions":[1],)");
  text.replace(text.find(R"("decisions":[])"), 14, R"("unknown":0)");
  EXPECT_THAT(RunSummaryFromJson(text), StatusIs(code, "'decisions'"));
  text = ToJson(MakeRun("a", 0, 1, 7));
  text.replace(text.find(R"("digest":"")"), 11, R"("digest":1)");
  EXPECT_THAT(RunSummaryFromJson(text), StatusIs(code, "'plan.digest'"));
}

TEST(Results, PointsComeBackFromJson) {
  for (const MetricPoint& point : MakeRun("a", 0, 1, 1000).points) {
    const std::string line = ToJson(point, "a", 0);
    const auto read = MetricPointFromJson(line);
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(ToJson(*read, "a", 0), line);
    EXPECT_EQ(read->test_accuracy, point.test_accuracy);
  }
}

TEST(Results, PointsKeepTheirTensors) {
  MetricPoint point;
  point.tensors = {{.tensor = "fc1.weight",
                    .codec = "2bit",
                    .residual_ratio = 1.5,
                    .zero_share = 0.75,
                    .saturated_share = 0.125,
                    .cosine = 0.5,
                    .relative_error = 2.5,
                    .num_nonfinite = 3}};
  const auto read = MetricPointFromJson(ToJson(point, "2bit", 0));
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->tensors.size(), 1u);
  EXPECT_EQ(read->tensors[0].tensor, "fc1.weight");
  EXPECT_EQ(read->tensors[0].codec, "2bit");
  EXPECT_EQ(read->tensors[0].residual_ratio, 1.5);
  EXPECT_EQ(read->tensors[0].zero_share, 0.75);
  EXPECT_EQ(read->tensors[0].saturated_share, 0.125);
  EXPECT_EQ(read->tensors[0].cosine, 0.5);
  EXPECT_EQ(read->tensors[0].relative_error, 2.5);
  EXPECT_EQ(read->tensors[0].num_nonfinite, 3);
}

// A codec without a residual has none to tell of.
TEST(Results, PointsSayWhatATensorDoesNotHave) {
  MetricPoint point;
  point.tensors = {{.tensor = "fc1.weight",
                    .codec = "qsgd",
                    .residual_ratio = std::nan(""),
                    .cosine = 0.5}};
  const std::string line = ToJson(point, "qsgd", 0);
  EXPECT_THAT(line, HasSubstr(R"("residual_ratio":null,)"));
  const auto read = MetricPointFromJson(line);
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->tensors.size(), 1u);
  EXPECT_TRUE(std::isnan(read->tensors[0].residual_ratio));
  EXPECT_EQ(read->tensors[0].cosine, 0.5);
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n');
}

TEST(Results, TheTableShowsMeansDifferencesAndRatios) {
  const std::vector<std::string> lines = Lines(SummaryTable(MakeRuns()));
  ASSERT_EQ(lines.size(), 8u) << "title, gap, two heads, rule, two rows, end";
  EXPECT_EQ(lines[0],
            "le<net on digits, 2 workers, 1 server, 100 steps, means of 2 "
            "seeds; bytes of all workers, with headers");
  // 160 MB in 100 steps; 5 s of waiting in 2 workers' 10 s each.
  const auto cells = [](const std::string& line) {
    return std::vector<std::string>(
        absl::StrSplit(line, ' ', absl::SkipEmpty()));
  };
  EXPECT_THAT(cells(lines[5]),
              ::testing::ElementsAre("none", "99.10", "±0.14", "-", "0.0500",
                                     "1.60", "1.60", "1.00", "1.60", "1.00",
                                     "1.00", "100", "25.0"));
  EXPECT_THAT(cells(lines[6]),
              ::testing::ElementsAre("2bit", "98.60", "±0.14", "-0.50", "±0.00",
                                     "0.0500", "1.60", "0.100", "16.00",
                                     "0.100", "16.00", "16.00", "100", "25.0"));
}

TEST(Results, TheTableFitsATerminal) {
  std::vector<RunSummary> runs = MakeRuns();
  runs.push_back(MakeRun("2bit+reply=reencode", 0, 0.9, 10'000'000));
  for (const std::string& line : Lines(SummaryTable(runs))) {
    EXPECT_LE(line.size(), 114u) << line;
  }
}

TEST(Results, BenchmarksShowLimitsAndMemoryInsteadOfAccuracy) {
  std::vector<RunSummary> runs = {MakeRun("none", 0, 0, 160'000'000),
                                  MakeRun("2bit", 0, 0, 10'000'000)};
  for (RunSummary& run : runs) {
    run.data = "synthetic";
    run.samples_per_s = 0;
    run.points.clear();
    run.step_seconds_p50 = 0.030;
    run.step_seconds_min = 0.025;
    run.byte_limit_s = 0.020;
    run.model_bytes = 500'000'000;
    run.worker_peak_bytes = 1'000'000'000;
    run.server_peak_bytes = 1'500'000'000;
  }
  for (const std::string& text : {SummaryTable(runs), ReportHtml(runs, "")}) {
    for (const char* shown :
         {"25.0", "30.0", "20.0", "1.50", "500", "1000", "1500"}) {
      EXPECT_THAT(text, HasSubstr(shown));
    }
  }
  const std::string table = SummaryTable(runs);
  for (const char* never : {"accuracy", "loss", "samples/s"}) {
    EXPECT_THAT(table, Not(HasSubstr(never)));
  }
  EXPECT_THAT(ReportHtml(runs, ""), Not(HasSubstr("<h2>Curves")));
}

TEST(Results, BytesOverTheBusAreShownWhereThereAreGpus) {
  std::vector<RunSummary> runs = MakeRuns();
  EXPECT_THAT(SummaryTable(runs), Not(HasSubstr("bus, ")));
  for (RunSummary& run : runs) {
    run.steps = 100;
    run.to_device_bytes = 123'400'000;
    run.from_device_bytes = 56'700'000;
  }
  for (const std::string& text : {SummaryTable(runs), ReportHtml(runs, "")}) {
    for (const char* shown :
         {"bus, MB/step", "to GPUs", "to hosts", "1.23", "0.567"}) {
      EXPECT_THAT(text, HasSubstr(shown));
    }
  }
}

TEST(Results, ThePageSaysInWordsWhatHappened) {
  EXPECT_THAT(
      ReportHtml(MakeRuns(), ""),
      HasSubstr("2bit pushed 16.0x and pulled 16.0x fewer bytes than 32-bit "
                "floats take; its test accuracy was 98.60 %, 0.50 points below "
                "none&#39;s 99.10 %; a step took 100 ms, 1.00 times as fast as "
                "with none (100 ms)."));
}

TEST(Results, ThePageEscapesAndLoadsNothing) {
  const std::string page = ReportHtml(MakeRuns(), "--out '<script>\"&'");
  EXPECT_THAT(page, HasSubstr("&#39;&lt;script&gt;&quot;&amp;&#39;"));
  EXPECT_THAT(page, HasSubstr("le&lt;net"));
  for (const char* never : {"<script", "http://", "https://", "src=", "@import",
                            "url(", "nan", "inf\""}) {
    EXPECT_THAT(page, Not(HasSubstr(never)));
  }
  EXPECT_THAT(page, HasSubstr("Accuracy (%) against bytes"));
}

TEST(Results, FilesAreReplacedAndNothingElseIsLeft) {
  std::string directory = ::testing::TempDir() + "results_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string out = directory + "/a/b";
  EXPECT_EQ(ExitCodeOf(WriteResults(out, {}, "")), ExitCode::kUsage);
  ASSERT_THAT(MakeFolder("--out", out), IsOk());
  ASSERT_THAT(WriteResults(out, {}, ""), IsOk());
  ASSERT_THAT(WriteResults(out, MakeRuns(), "x"), IsOk());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(out)) {
    ++files;
    EXPECT_THAT(
        (std::set<std::string>{"metrics.jsonl", "summary.json", "report.html"}),
        ::testing::Contains(entry.path().filename().string()));
  }
  EXPECT_EQ(files, 3u);
  std::stringstream summary;
  summary << std::ifstream(out + "/summary.json").rdbuf();
  EXPECT_THAT(summary.str(), HasSubstr("\"setting\":\"2bit\""));
  std::filesystem::remove_all(out);
  std::ofstream(directory + "/file") << "x";
  EXPECT_THAT(MakeFolder("--out", directory + "/file"),
              StatusIs(absl::StatusCode::kInvalidArgument, "--out"));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace telegrad
