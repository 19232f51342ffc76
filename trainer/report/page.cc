#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "trainer/report/chart.h"
#include "trainer/report/groups.h"
#include "trainer/report/html.h"
#include "trainer/report/style.h"
#include "trainer/report/summary_text.h"
#include "trainer/results.h"

namespace telegrad {
namespace {

std::string BytesOrDash(int64_t bytes) {
  return bytes > 0 ? FormatBytes(static_cast<double>(bytes)) : "-";
}

TableCells SettingsTable(const std::vector<SettingGroup>& groups) {
  TableCells table = {"How each setting was run",
                      PlainColumns({"setting", "seeds", "codec", "reply",
                                    "update on", "threshold", "byte limit",
                                    "model", "peak worker", "peak server"}),
                      {}};
  for (const SettingGroup& group : groups) {
    const RunSummary& run = *group.runs.front();
    std::vector<uint64_t> seeds;
    for (const RunSummary* each : group.runs) seeds.push_back(each->seed);
    table.rows.push_back(
        {group.setting, absl::StrJoin(seeds, ", "), run.codec, run.reply,
         run.update_on, run.codec == "none" ? "-" : run.threshold,
         group.byte_limit_s > 0
             ? absl::StrFormat("%.3g ms per step", group.byte_limit_s * 1e3)
             : "-",
         BytesOrDash(group.model_bytes), BytesOrDash(group.worker_peak_bytes),
         BytesOrDash(group.server_peak_bytes)});
  }
  return table;
}

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

std::string SettingsLegend(const std::vector<SettingGroup>& groups) {
  std::vector<std::string> names;
  for (const SettingGroup& group : groups) names.push_back(group.setting);
  return LegendHtml(names) +
         "<p class=\"lead\">With marks: test set, after each epoch. "
         "Thin: training, mean since the point before; the highest losses "
         "and lowest accuracies may lie outside. One curve per seed.</p>\n";
}

// What runs chose for themselves; nothing when none had a choice.
std::string DecisionsHtml(const std::vector<RunSummary>& runs) {
  std::string html;
  for (const RunSummary& run : runs) {
    for (const std::string& decision : run.decisions) {
      absl::StrAppend(&html, "<li>", EscapeHtml(run.setting), ", seed ",
                      run.seed, ": ", EscapeHtml(decision), "</li>\n");
    }
  }
  if (html.empty()) return html;
  return absl::StrCat("<h2>Decisions</h2>\n<ul>\n", html, "</ul>\n");
}

// What all workers agreed on at the start, once for runs that agreed alike;
// plans that differ are named after the first run that had them.
std::string PlanHtml(const std::vector<RunSummary>& runs) {
  std::vector<const RunSummary*> plans;
  for (const RunSummary& run : runs) {
    if (run.plan.decisions.empty()) continue;
    if (plans.empty() || !(run.plan == plans.back()->plan)) {
      plans.push_back(&run);
    }
  }
  if (plans.empty()) return "";
  std::string html = "<h2>Plan</h2>\n";
  for (const RunSummary* run : plans) {
    if (plans.size() > 1) {
      absl::StrAppend(&html, "<p>", EscapeHtml(run->setting), ", seed ",
                      run->seed, ":</p>\n");
    }
    TableCells table = {"", PlainColumns({"decision", "choice", "reason"}), {}};
    for (const PlannedChoice& each : run->plan.decisions) {
      table.rows.push_back({each.what, each.choice, each.why});
    }
    absl::StrAppend(&html, TableHtml(table, "left"));
  }
  return html;
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
  std::string html = PageHead();
  absl::StrAppend(&html, "<main><h1>Telegrad: what compression did</h1>\n",
                  "<p class=\"lead\">", EscapeHtml(DescribeRuns(groups)));
  if (!runs.empty() && !runs.front().transport.empty()) {
    absl::StrAppend(&html, "; over ", EscapeHtml(runs.front().transport));
  }
  absl::StrAppend(&html, "</p>\n<p class=\"said\">",
                  EscapeHtml(SummaryText(groups)), "</p>\n",
                  TableHtml(MakeTable(groups), ""));
  absl::StrAppend(&html, TargetHtml(groups, extras.target), TradeHtml(groups),
                  WhatIfHtml(extras));
  if (HaveCurves(groups)) {
    absl::StrAppend(&html, "<h2>Curves</h2>\n", SettingsLegend(groups),
                    ChartsHtml(groups));
  }
  absl::StrAppend(&html, StepHtml(groups), TensorsHtml(groups),
                  LayersHtml(groups), PlanHtml(runs), DecisionsHtml(runs),
                  EnvironmentHtml(runs), "<h2>Settings</h2>\n",
                  TableHtml(SettingsTable(groups), "left"), "<pre>",
                  EscapeHtml(command_line), "</pre>\n", PageDefinitions(),
                  "</main></body></html>\n");
  return html;
}

}  // namespace telegrad
