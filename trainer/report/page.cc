#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "trainer/report/chart.h"
#include "trainer/report/groups.h"
#include "trainer/report/html.h"
#include "trainer/report/results.h"
#include "trainer/report/style.h"
#include "trainer/report/summary_text.h"

namespace telegrad {
namespace {

std::string BytesOrDash(int64_t bytes) {
  return bytes > 0 ? FormatBytes(static_cast<double>(bytes)) : "-";
}

TableCells SettingsTable(const std::vector<SettingGroup>& groups) {
  TableCells table = {
      "How each setting was run",
      PlainColumns({"setting", "seeds", "codec", "compressed", "reply",
                    "update on", "threshold", "byte limit", "model",
                    "peak worker", "peak server"}),
      {}};
  for (const SettingGroup& group : groups) {
    const RunSummary& run = *group.runs.front();
    std::vector<uint64_t> seeds;
    for (const RunSummary* each : group.runs) seeds.push_back(each->seed);
    table.rows.push_back(
        {group.setting, absl::StrJoin(seeds, ", "), run.codec,
         run.num_tensors > 0
             ? absl::StrFormat("%.1f %%", 100 * run.compressed_share)
             : "-",
         run.reply, run.update_on, run.codec == "none" ? "-" : run.threshold,
         group.byte_limit_s > 0
             ? absl::StrFormat("%.3g ms per step", group.byte_limit_s * 1e3)
             : "-",
         BytesOrDash(group.model_bytes), BytesOrDash(group.worker_peak_bytes),
         BytesOrDash(group.server_peak_bytes)});
  }
  return table;
}

// The others are findings.
bool IsShownInPlan(const ReportedDecision& choice) {
  return choice.what != "warning" && choice.what != "advice";
}

constexpr size_t kFewSettings = 6;  // settings whose curves can be told apart

enum class XValue { kSteps, kSeconds, kMegabytes };

double XOf(const MetricPoint& point, XValue kind) {
  if (kind == XValue::kSteps) return static_cast<double>(point.step);
  if (kind == XValue::kSeconds) return point.seconds;
  return static_cast<double>(point.wire_bytes) / 1e6;
}

void AddCurves(const SettingGroup& group, int style, XValue kind,
               Chart& chart) {
  for (const RunSummary* run : group.runs) {
    Curve train = {
        .name = group.setting + ", training", .style = style, .points = {}};
    Curve test = {.name = group.setting + ", test",
                  .style = style,
                  .is_marked = true,
                  .points = {}};
    for (const MetricPoint& point : run->points) {
      const double x = XOf(point, kind);
      train.points.push_back(
          {x, chart.is_share ? point.train_accuracy : point.train_loss});
      if (point.test_accuracy < 0) continue;
      test.points.push_back(
          {x, chart.is_share ? point.test_accuracy : point.test_loss});
    }
    chart.curves.push_back(std::move(train));
    chart.curves.push_back(std::move(test));
  }
}

std::string ChartsHtml(const std::vector<SettingGroup>& groups) {
  struct Kind {
    XValue x;
    const char* title;
    const char* label;
  };
  constexpr Kind kKinds[] = {
      {XValue::kSteps, "against steps", "steps"},
      {XValue::kSeconds, "against time", "seconds since the first step"},
      {XValue::kMegabytes, "against bytes",
       "MB on the wire, all workers, push + pull (log)"}};
  std::string html = "<div class=\"charts\">\n";
  for (bool is_share : {false, true}) {
    for (const Kind& kind : kKinds) {
      Chart chart = {
          .title = absl::StrCat(is_share ? "Accuracy (%) " : "Loss (nats) ",
                                kind.title),
          .x_label = kind.label,
          .is_log_x = kind.x == XValue::kMegabytes,
          .is_share = is_share,
          .curves = {}};
      for (size_t i = 0; i < groups.size(); ++i) {
        AddCurves(groups[i], static_cast<int>(i), kind.x, chart);
      }
      absl::StrAppend(&html, "<div class=\"card\">", ChartSvg(chart), "</div>");
    }
  }
  return html + "</div>\n";
}

// Charts of accuracy alone, one for each setting, beside none in grey.
std::string SmallCharts(const std::vector<SettingGroup>& groups) {
  Chart all = {};
  all.is_share = true;
  for (const SettingGroup& group : groups) {
    AddCurves(group, 0, XValue::kSteps, all);
  }
  Chart of_none = {};
  of_none.is_share = true;
  if (const SettingGroup* const none = FindNone(groups); none != nullptr) {
    AddCurves(*none, 0, XValue::kSteps, of_none);
    for (Curve& curve : of_none.curves) curve.is_grey = true;
  }
  std::string html = "<div class=\"charts many\">\n";
  for (const SettingGroup& group : groups) {
    Chart chart = of_none;
    chart.title = group.setting;
    chart.x_label = "steps; accuracy (%)";
    AddCurves(group, 1, XValue::kSteps, chart);
    absl::StrAppend(&html, "<div class=\"card\">", ChartSvg(chart, &all),
                    "</div>");
  }
  return html + "</div>\n";
}

std::string SettingsLegend(const std::vector<SettingGroup>& groups) {
  std::vector<std::string> names;
  for (const SettingGroup& group : groups) names.push_back(group.setting);
  return LegendHtml(names) +
         "<p class=\"lead\">With marks: test set, after each epoch. "
         "Thin: training, mean since the point before; the highest losses "
         "and lowest accuracies may lie outside. One curve per seed.</p>\n";
}

// What explains the numbers of which settings; lines that are alike once.
std::string FindingsHtml(const std::vector<SettingGroup>& groups) {
  std::vector<std::pair<std::string, std::vector<std::string>>> findings;
  const auto add = [&findings](std::string text, const std::string& whose) {
    if (text.empty()) return;
    auto found = std::ranges::find(findings, text,
                                   [](const auto& each) { return each.first; });
    if (found == findings.end()) {
      findings.push_back({std::move(text), {}});
      found = findings.end() - 1;
    }
    if (std::ranges::count(found->second, whose) == 0) {
      found->second.push_back(whose);
    }
  };
  for (const SettingGroup& group : groups) {
    add(CoverageText(*group.runs.front()), group.setting);
    for (const RunSummary* run : group.runs) {
      const std::string whose =
          absl::StrCat(group.setting, group.runs.size() > 1 ? ", seed " : "",
                       group.runs.size() > 1 ? absl::StrCat(run->seed) : "");
      for (const auto* lines :
           {&run->decisions, &run->warnings, &run->stragglers}) {
        for (const std::string& line : *lines) add(line, whose);
      }
      for (const ReportedDecision& each : run->plan.decisions) {
        if (!IsShownInPlan(each)) add(each.why, whose);
      }
    }
  }
  if (findings.empty()) return "";
  std::string html = "<h2>What explains the numbers</h2>\n<ul>\n";
  for (const auto& [text, whose] : findings) {
    absl::StrAppend(&html, "<li><b>", EscapeHtml(absl::StrJoin(whose, "; ")),
                    ":</b> ", EscapeHtml(text), "</li>\n");
  }
  return html + "</ul>\n";
}

// What all workers agreed on at the start: a row for each choice, with the
// settings that have it where not all do.
std::string PlanHtml(const std::vector<SettingGroup>& groups) {
  TableCells table = {
      "", PlainColumns({"decision", "choice", "settings", "reason"}), {}};
  for (const SettingGroup& group : groups) {
    for (const ReportedDecision& each : group.runs.front()->plan.decisions) {
      if (!IsShownInPlan(each)) continue;
      auto row = std::ranges::find_if(table.rows, [&each](const auto& cells) {
        return cells[0] == each.what && cells[1] == each.choice &&
               cells[3] == each.why;
      });
      if (row != table.rows.end()) {
        absl::StrAppend(&(*row)[2], ", ", group.setting);
        continue;
      }
      row = std::ranges::find_if(
                table.rows.rbegin(), table.rows.rend(),
                [&each](const auto& cells) { return cells[0] == each.what; })
                .base();
      if (row == table.rows.begin()) row = table.rows.end();
      table.rows.insert(row, {each.what, each.choice, group.setting, each.why});
    }
  }
  if (table.rows.empty()) return "";
  const auto name = [](const SettingGroup& group) { return group.setting; };
  std::vector<std::string> names(groups.size());
  std::ranges::transform(groups, names.begin(), name);
  for (std::vector<std::string>& row : table.rows) {
    if (row[2] == absl::StrJoin(names, ", ")) row[2] = "all";
  }
  return absl::StrCat("<h2>Plan</h2>\n", TableHtml(table, "left"));
}

bool HaveCurves(const std::vector<SettingGroup>& groups) {
  for (const SettingGroup& group : groups) {
    for (const RunSummary* run : group.runs) {
      if (group.has_accuracy && !run->points.empty()) return true;
    }
  }
  return false;
}

}  // namespace

std::string ReportHtml(const std::vector<RunSummary>& runs,
                       absl::string_view command_line,
                       const ReportExtras& extras) {
  const std::vector<SettingGroup> groups = GroupBySetting(runs);
  const std::string verdict = VerdictText(groups);
  std::string html = PageHead();
  absl::StrAppend(&html, "<main><h1>Telegrad: what compression did</h1>\n",
                  "<p class=\"lead\">", EscapeHtml(DescribeRuns(groups)),
                  "</p>\n<h2>Verdict</h2>\n<p class=\"said\">",
                  verdict.empty() ? "Nothing to compare with: --compare "
                                    "none,2bit trains with both. "
                                  : "",
                  EscapeHtml(SummaryText(groups)), "</p>\n",
                  FindingsHtml(groups), TradeHtml(groups),
                  TargetHtml(groups, extras.target), StepHtml(groups),
                  "<h2>All figures</h2>\n", TableHtml(MakeTable(groups), ""),
                  WhatIfHtml(extras));
  if (HaveCurves(groups)) {
    const bool are_few = groups.size() <= kFewSettings;
    absl::StrAppend(&html, "<h2>Curves</h2>\n",
                    are_few ? SettingsLegend(groups) + ChartsHtml(groups)
                            : SmallCharts(groups));
  }
  absl::StrAppend(&html, TensorsHtml(groups), LayersHtml(groups),
                  PlanHtml(groups), "<h2>Settings</h2>\n",
                  TableHtml(SettingsTable(groups), "left"), "<pre>",
                  EscapeHtml(command_line), "</pre>\n", EnvironmentHtml(runs),
                  PageDefinitions(), "</main></body></html>\n");
  return html;
}

}  // namespace telegrad
