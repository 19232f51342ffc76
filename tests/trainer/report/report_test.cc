#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/run/evaluated_run.h"
#include "trainer/report/chart.h"
#include "trainer/report/html.h"
#include "trainer/report/results.h"
#include "trainer/report/summary_text.h"

// The page's sections, and what they are made of.
namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Report, FindsTheFirstEvaluationWithAnAccuracy) {
  const RunSummary run = RunOf("none", 0.09, 1000);
  EXPECT_EQ(FirstAt(run, 0.5)->step, 60);
  EXPECT_EQ(FirstAt(run, 0.01)->step, 10);
  EXPECT_EQ(FirstAt(run, 0.91), nullptr);
}

TEST(Report, CurvesOfTheSameColourHaveOtherMarks) {
  std::set<std::pair<int, std::string>> seen;
  for (int style = 0; style < kNumStyles * kNumMarks; ++style) {
    EXPECT_TRUE(seen.emplace(style % kNumStyles, MarkSvg(style, 0, 0)).second)
        << style;
  }
}

TEST(Report, ManySettingsHaveAChartEachBesideNoneInGrey) {
  std::vector<RunSummary> runs = {RunOf("none", 0.09, 9)};
  for (int i = 0; i < 17; ++i) {
    runs.push_back(RunOf(std::string(1, static_cast<char>('a' + i)), 0.08, 9));
  }
  const std::string page = ReportHtml(runs, "");
  const std::string curves = page.substr(page.find("<h2>Curves</h2>"));
  size_t grey = 0;
  for (size_t at = 0; (at = curves.find("class=\"grey\"", at)) != curves.npos;
       ++at) {
    ++grey;
  }
  EXPECT_EQ(grey, 2 * runs.size());  // training and test
  runs.resize(6);
  EXPECT_THAT(ReportHtml(runs, ""), Not(HasSubstr("class=\"grey\"")));
}

TEST(Report, TellsTimeAndBytesToATarget) {
  const std::vector<RunSummary> runs = {RunOf("none", 0.09, 800'000),
                                        RunOf("2bit", 0.08, 50'000),
                                        RunOf("1bit", 0.04, 25'000)};
  const std::string page = ReportHtml(runs, "", {.target = 0.5});
  EXPECT_THAT(page, HasSubstr("<h2>To an accuracy</h2>"));
  EXPECT_THAT(page, HasSubstr("First evaluation with 50 %"));
  // none: 6 evaluations, 12 s, 4.8 MB; 2bit: 7, 14 s, 350 kB; 1bit: never.
  const auto groups = GroupBySetting(runs);
  const std::string section = TargetHtml(groups, 0.5);
  for (const char* cell : {">12.0<", ">4.80 MB<", ">14.0<", ">0.86<",
                           ">350 kB<", ">13.71<", ">never<", ">0 of 1<"}) {
    EXPECT_THAT(section, HasSubstr(cell));
  }
  EXPECT_THAT(ReportHtml(runs, ""), Not(HasSubstr("To an accuracy")));
}

TEST(Report, ComparesAccuracyRunByRunOfASeed) {
  std::vector<RunSummary> runs;
  // Differences of -1, -2 and -3 points, while seeds differ by 10.
  for (const auto& [setting, rises] :
       {std::pair<const char*, std::vector<double>>("none", {.07, .08, .09}),
        {"2bit", {.069, .078, .087}}}) {
    for (size_t seed = 0; seed < rises.size(); ++seed) {
      runs.push_back(RunOf(setting, rises[seed], 1000));
      runs.back().seed = seed;
    }
  }
  // Without a partner: counts for nothing in the difference.
  runs.push_back(RunOf("2bit", 0.01, 1000));
  runs.back().seed = 7;
  const auto groups = GroupBySetting(runs);
  const PairedDifference difference = AccuracyDifference(groups[1], groups[0]);
  EXPECT_EQ(difference.num_pairs, 3u);
  EXPECT_NEAR(difference.mean, -0.02, 1e-12);
  // t of two degrees of freedom, deviation of one point, three pairs.
  EXPECT_NEAR(difference.half_width, 4.303 * 0.01 / std::sqrt(3), 1e-9);
  EXPECT_THAT(TableText(MakeTable(groups)), HasSubstr("-2.00 ±2.48"));
  EXPECT_THAT(SummaryText(groups), HasSubstr("no difference that 3 seeds"));
  EXPECT_EQ(
      AccuracyDifference(GroupBySetting({runs[6]})[0], groups[0]).num_pairs,
      0u);
}

// Each codec has a rate of its own.
TEST(Report, ComparesWithTheOnlySettingWithoutCompression) {
  std::vector<RunSummary> runs = {RunOf("none+lr=0.1", 0.09, 800'000),
                                  RunOf("2bit+lr=0.01", 0.08, 50'000)};
  runs[0].codec = "none";
  runs[1].codec = "2bit";
  EXPECT_THAT(TableText(MakeTable(GroupBySetting(runs))), HasSubstr("-10.00"));
  EXPECT_THAT(SummaryText(GroupBySetting({runs[0]})),
              HasSubstr("Its test accuracy was 90.00 %"));
  runs.push_back(RunOf("none+lr=0.2", 0.05, 800'000));
  runs[2].codec = "none";
  EXPECT_EQ(FindNone(GroupBySetting(runs)), nullptr);
  runs[2].setting = "none";
  EXPECT_EQ(FindNone(GroupBySetting(runs))->setting, "none");
}

TEST(Report, MarksTheSettingsThatNoOtherBeats) {
  const std::vector<RunSummary> runs = {
      RunOf("none", 0.099, 800'000),    // most accurate
      RunOf("2bit", 0.098, 50'000),     // on the front
      RunOf("worse", 0.097, 60'000),    // beaten by 2bit in both
      RunOf("smallest", 0.09, 10'000),  // fewest bytes
      RunOf("alike", 0.098, 50'000)};   // as 2bit: none beats the other
  const auto groups = GroupBySetting(runs);
  const std::vector<Trade> trades = TradesOf(groups);
  ASSERT_EQ(trades.size(), 5u);
  std::vector<std::string> front;
  for (const Trade& trade : trades) {
    if (trade.is_on_front) front.push_back(trade.group->setting);
  }
  EXPECT_THAT(front,
              ::testing::ElementsAre("none", "2bit", "smallest", "alike"));
  EXPECT_NEAR(trades[1].to_none, -0.01, 1e-9);
  EXPECT_NEAR(trades[1].bytes, 5000, 1e-9);
  const std::string section = TradeHtml(groups);
  EXPECT_THAT(section, HasSubstr("class=\"ring\""));
  EXPECT_THAT(section, HasSubstr(">smallest -9.00</text>"));
  EXPECT_EQ(TradeHtml(GroupBySetting({runs[0]})), "");
}

TEST(Report, TensorsAndEnvironmentComeBackFromJsonAndAreShown) {
  RunSummary run = RunOf("2bit", 0.09, 1000);
  run.tensors = {{.tensor = "fc1.weight",
                  .codec = "2bit",
                  .reason = "type <2bit>",
                  .reply = "sum",
                  .elements = 16000,
                  .push_bytes = 4064,
                  .pull_bytes = 6064}};
  run.environment = {{"processor", "A & B"}};
  run.link = "1gbit";
  const auto read = RunSummaryFromJson(ToJson(run));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(ToJson(*read), ToJson(run));
  EXPECT_EQ(read->environment, run.environment);
  const std::string page = ReportHtml({*read}, "");
  for (const char* shown :
       {"<h2>Bytes by tensor</h2>", "fc1.weight", ">15.75<", ">10.55<",
        "type &lt;2bit&gt;", "<h2>Environment</h2>", "A &amp; B", ">1gbit<"}) {
    EXPECT_THAT(page, HasSubstr(shown));
  }
  EXPECT_FALSE(RunSummaryFromJson(
                   ToJson(run).replace(ToJson(run).find("16000"), 5, "\"x\""))
                   .ok());
}

TEST(Report, ShowsHowTensorsWentOverTime) {
  RunSummary run = RunOf("2bit", 0.09, 1000);
  for (MetricPoint& point : run.points) {
    for (int t = 0; t < 10; ++t) {
      point.tensors.push_back({.tensor = "layer" + std::to_string(t),
                               .codec = "2bit",
                               .residual_ratio = 3,
                               .zero_share = 0.5,
                               .cosine = t == 0 ? std::nan("") : 0.7});
    }
  }
  for (int t = 0; t < 10; ++t) {
    run.tensors.push_back(
        {.tensor = "layer" + std::to_string(t), .elements = 100 * (t + 1)});
  }
  const std::string section = LayersHtml(GroupBySetting({run}));
  // The eight largest.
  EXPECT_THAT(section, Not(HasSubstr(">layer1<")));
  EXPECT_THAT(section, HasSubstr("layer2"));
  EXPECT_THAT(section, HasSubstr("layer9"));
  EXPECT_THAT(section, HasSubstr("Cosine of what was sent"));
  EXPECT_THAT(section, Not(HasSubstr("nan")));
}

TEST(Report, ShowsWhatOtherLinksWouldTake) {
  const ReportExtras extras = {
      .what_if = {
          {.setting = "2bit",
           .link = "100mbit",
           .bytes_per_s = 12.5e6,
           .step_s = 0.0123,
           .total_s = 45.6},
          {.setting = "2bit",
           .link = "1gbit",
           .bytes_per_s = 125e6,
           .step_s = 0.011,
           .total_s = 33,
           .measured_step_s = 0.010},
          {.setting = "2bit",
           .link = "1gbit,5ms",
           .bytes_per_s = 125e6,
           .latency_s = 0.005,
           .step_s = 0.021},
          {.setting = "x", .link = "1gbit", .why_not = "no <figures>"}}};
  const std::string page = ReportHtml({RunOf("2bit", 0.09, 9)}, "", extras);
  for (const char* shown :
       {"<h2>What if</h2>", "Steps per second", ": 81.3008 at 0.1<", ">12.3<",
        ">45.6<", ">2bit, 5 ms<", ">10.0<", ">+10<", "no &lt;figures&gt;"}) {
    EXPECT_THAT(page, HasSubstr(shown));
  }
  EXPECT_THAT(WhatIfText(extras), HasSubstr("12.3"));
  EXPECT_EQ(WhatIfText({}), "");
}

TEST(Report, ShowsAStepAsATimeLine) {
  RunSummary run = RunOf("2bit", 0.09, 9);
  run.timeline = {{"step", "step", 0, 0.040},
                  {"step", "forward and backward", 0, 0.030},
                  {"fc<1>", "encode", 0.020, 0.021},
                  {"fc<1>", "network and server", 0.021, 0.035},
                  {"fc<1>", "of another version", 0.021, 0.035}};
  const auto read = RunSummaryFromJson(ToJson(run));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(ToJson(*read), ToJson(run));
  const std::string page = ReportHtml({*read}, "");
  for (const char* shown :
       {"<h2>One step</h2>", "fc&lt;1&gt;: encode, 20.000 to 21.000 ms",
        ">forward and backward</li>", ">fc&lt;1&gt;</text>"}) {
    EXPECT_THAT(page, HasSubstr(shown));
  }
  EXPECT_THAT(page, Not(HasSubstr("of another version,")));
  EXPECT_THAT(page, Not(HasSubstr(">decode</li>")));
  EXPECT_EQ(StepHtml(GroupBySetting({RunOf("2bit", 0.09, 9)})), "");
}

// What a keyboard and a screen reader need.
TEST(Report, TablesCanBeReachedByKeyboardAndAreNamed) {
  const std::string page =
      ReportHtml({RunOf("none", 0.09, 9), RunOf("2bit", 0.08, 1)}, "");
  size_t tables = 0;
  size_t regions = 0;
  for (size_t at = 0; (at = page.find("<table", at)) != page.npos; ++at) {
    ++tables;
  }
  for (size_t at = 0;
       (at = page.find("role=\"region\" tabindex=\"0\" aria-label=\"", at)) !=
       page.npos;
       ++at) {
    ++regions;
  }
  EXPECT_GT(tables, 2u);
  EXPECT_EQ(regions, tables);
  EXPECT_THAT(page, Not(HasSubstr("<th>")));
  EXPECT_THAT(page, HasSubstr(":focus-visible"));
}

TEST(Chart, HasRoomForTheRingOfItsHighestPoint) {
  for (const double highest : {0.0, 0.149, 0.15, 0.2, 3.0}) {
    Chart chart;
    chart.is_signed = true;
    Curve& curve = chart.curves.emplace_back();
    curve.is_marked = curve.is_ringed = true;
    curve.points = {{1, -0.02}, {2, highest}};
    const std::string svg = ChartSvg(chart);
    // What lies above the nested viewport is cut off.
    std::smatch clip;
    ASSERT_TRUE(std::regex_search(svg, clip, std::regex(" y=\"(\\d+)\" w")));
    const std::regex rings("class=\"ring\" cx=\"\\S+ cy=\"(\\S+)\" r=\"9\"");
    const std::sregex_iterator first(svg.begin(), svg.end(), rings);
    const auto highest_ring = std::next(first);
    ASSERT_NE(highest_ring, std::sregex_iterator());
    EXPECT_GE(std::stod((*highest_ring)[1]) - 9, std::stod(clip[1])) << highest;
  }
}

}  // namespace
}  // namespace telegrad
