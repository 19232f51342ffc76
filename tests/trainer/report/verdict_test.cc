#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/run/evaluated_run.h"
#include "trainer/report/chart.h"
#include "trainer/report/results.h"
#include "trainer/report/summary_text.h"

// What the page and the terminal say first, and what explains it.
namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

std::string VerdictOf(std::vector<RunSummary> runs) {
  return VerdictText(GroupBySetting(runs));
}

TEST(Verdict, BeginsWithAVerdict) {
  std::vector<RunSummary> runs = {RunOf("none", 0.099, 800'000),
                                  RunOf("2bit", 0.0988, 50'000)};
  runs[0].step_seconds_p50 = 0.100;
  runs[1].step_seconds_p50 = 0.050;
  EXPECT_EQ(VerdictOf(runs),
            "Compression pays here: use 2bit, with which a step takes 50.0 ms, "
            "with none 100 ms: 2.00 times as fast; 16.0x fewer bytes both "
            "ways, -0.20 points of accuracy (one seed: not distinguishable).");
  EXPECT_EQ(SummarySentences(runs),
            VerdictOf(runs) +
                " 2bit pushed 16.0x and pulled 16.0x fewer bytes "
                "than 32-bit floats take.");  // the rest once
  EXPECT_EQ(SummarySentences({RunOf("auto", 0.0988, 800'000)}),
            "auto sent as much as 32-bit floats take; its test accuracy was "
            "98.80 %.");
  runs[1].step_seconds_p50 = 0.101;
  EXPECT_THAT(VerdictOf(runs), HasSubstr("makes no difference to the time"));
  runs[1].step_seconds_p50 = 0.150;
  EXPECT_THAT(VerdictOf(runs), HasSubstr("does not pay here"));
  runs[1].accuracy = 0.5;
  EXPECT_THAT(VerdictOf(runs), HasSubstr("Closest is 2bit, -49.00 points of "
                                         "accuracy (one seed)."));
  runs[1].accuracy = 0.9885;
  runs.push_back(runs[0]);
  runs.push_back(runs[1]);
  runs[2].seed = runs[3].seed = 1;
  EXPECT_THAT(VerdictOf(runs), HasSubstr("-0.15 ±0.00 points of accuracy. "));
  runs[1].jobs = 2;
  EXPECT_THAT(VerdictOf(runs), HasSubstr("By bytes use 2bit: 16.0x"));
  EXPECT_EQ(VerdictOf({runs[0]}), "");
  EXPECT_THAT(VerdictOf({runs[1], RunOf("1bit", 0.09, 9)}),
              HasSubstr("No verdict"));
  EXPECT_THAT(ReportHtml({runs[0]}, ""), HasSubstr("Nothing to compare with"));
}

TEST(Verdict, PraisesNoSettingThatSendsWhatNoneSends) {
  std::vector<RunSummary> runs = {RunOf("none", 0.099, 800'000),
                                  RunOf("none+optimizer=nag", 0.099, 800'000),
                                  RunOf("2bit", 0.0988, 50'000)};
  for (RunSummary& run : runs) run.codec = "none";
  runs[2].codec = "2bit";
  runs[0].step_seconds_p50 = 0.100;
  runs[1].step_seconds_p50 = 0.010;
  runs[2].step_seconds_p50 = 0.050;
  EXPECT_THAT(VerdictOf(runs), HasSubstr("Compression pays here: use 2bit"));
  EXPECT_THAT(SummarySentences(runs),
              HasSubstr("none+optimizer=nag sent as much as none; "));
  runs.pop_back();
  EXPECT_THAT(VerdictOf(runs), HasSubstr("No verdict: none of these settings"));
}

// In the order in which one reads it.
TEST(Verdict, TellsWhatExplainsTheNumbersBeforeThem) {
  std::vector<RunSummary> runs = {RunOf("none", 0.099, 800'000),
                                  RunOf("2bit", 0.09, 50'000),
                                  RunOf("1bit", 0.09, 50'000)};
  for (RunSummary& run : runs) {
    run.codec = run.setting;
    run.num_tensors = 65;
    run.timeline = {{"step", "step", 0, 0.04}, {"step", "wait", 0, 0.03}};
    run.transport = "tcp: <details>";
    run.environment = {{"processor", "one"}};
    run.plan.decisions = {{"link", "1 Gb/s", "given"},
                          {"compression", run.setting, "--gc-type"},
                          {"warning", "", "a slow card"}};
    run.num_compressed = run.setting == "none" ? 0 : 6;
    run.num_small = 59;
    run.compressed_share = run.setting == "none" ? 0 : 0.75;
  }
  runs[1].decisions = {"guard: fc1 goes dense"};
  runs[1].warnings = {"hint: 2bit beside momentum"};
  runs[2].stragglers = {"straggler worker/1"};
  std::vector<RunSummary> read;
  for (const RunSummary& run : runs) {
    const auto each = RunSummaryFromJson(ToJson(run));
    ASSERT_THAT(each, IsOk());
    EXPECT_EQ(ToJson(*each), ToJson(run));
    read.push_back(*each);
    read.back().points = run.points;
  }
  const std::string page = ReportHtml(read, "");
  size_t at = 0;
  for (const char* part :
       {"<h2>Verdict</h2>", "<h2>What explains the numbers</h2>",
        "<b>none; 2bit; 1bit:</b> a slow card",
        "<b>2bit; 1bit:</b> 6 of 65 tensors went compressed, 75.0 % of the "
        "gradient&#39;s bytes: no codec can push more than 4.0x fewer; 59 are "
        "small: --gc-min-bytes 0",
        "<b>2bit:</b> guard: fc1 goes dense</li>",
        "<b>2bit:</b> hint: 2bit beside momentum</li>",
        "<b>1bit:</b> straggler worker/1</li>", "<h2>Accuracy for bytes</h2>",
        "class=\"slim\"", "<h2>One step</h2>", "<h3>none, seed 0</h3>",
        "<h2>All figures</h2>", "<h2>Curves</h2>", "<h2>Plan</h2>", ">all<",
        "<h2>Environment</h2>", "tcp: &lt;details&gt;"}) {
    // Two lines may come in either order.
    const size_t found = page.find(part);
    ASSERT_NE(found, page.npos) << part;
    if (part[1] != 'h') continue;
    EXPECT_GT(found, at) << part;
    at = found;
  }
  EXPECT_EQ(page.find("tcp: &lt;"), page.rfind("tcp: &lt;"));
  EXPECT_EQ(page.find(">1 Gb/s<"), page.rfind(">1 Gb/s<"));
  EXPECT_THAT(SummaryText(GroupBySetting(runs)),
              HasSubstr("(75 % of them went compressed)"));
}

// Accuracy that is lost has a minus in tables, in the chart and in sentences.
TEST(Verdict, AccuracyLostHasOneSign) {
  const std::vector<RunSummary> runs = {RunOf("none", 0.099, 800'000),
                                        RunOf("2bit", 0.09, 50'000)};
  const std::string page = ReportHtml(runs, "");
  EXPECT_THAT(page, HasSubstr("2bit: -9.0000 at"));  // the chart's mark
  EXPECT_THAT(page, Not(HasSubstr("+9.00")));
  EXPECT_THAT(page, Not(HasSubstr("lost +")));
  EXPECT_THAT(VerdictOf(runs), HasSubstr("-9.00 points"));
  EXPECT_THAT(SummaryTable(runs), HasSubstr("-9.00"));
}

TEST(NamedChart, WritesTheValueOfWhatLiesFarBelow) {
  Chart chart;
  chart.is_signed = true;
  for (const double y : {0.0, -0.1, 0.05, -0.2, -0.2, -6.65}) {
    chart.curves.push_back({.name = absl::StrCat("at", y),
                            .is_marked = true,
                            .is_named = true,
                            .points = {{1, y}}});
  }
  const std::string svg = ChartSvg(chart);
  EXPECT_THAT(svg, HasSubstr(">at-6.65 -6.65</text>"));
  EXPECT_THAT(svg, HasSubstr("class=\"cut\""));
  EXPECT_THAT(svg, HasSubstr(">-0.2</text>"));  // the others' axis
  EXPECT_THAT(svg, Not(HasSubstr(">-6</text>")));
  // Two at one place: a line leads to it.
  EXPECT_THAT(svg, HasSubstr("class=\"leader\""));
  chart.curves.pop_back();
  EXPECT_THAT(ChartSvg(chart), Not(HasSubstr("class=\"cut\"")));
}

}  // namespace
}  // namespace telegrad
