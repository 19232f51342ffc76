#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/report/chart.h"
#include "trainer/report/html.h"

// What the simulator says of other links.
namespace telegrad {
namespace {

TableCells WhatIfCells(const ReportExtras& extras) {
  const std::string total =
      extras.target > 0 ? absl::StrFormat("s to %.6g %%", 100 * extras.target)
                        : "s in all";
  TableCells table = {
      "What if: a step as the simulator has it, from measured computing and "
      "codecs; beside links that were run, what was measured",
      PlainColumns({"setting", "link", "step ms", total.c_str(), "measured ms",
                    "error %"}),
      {}};
  for (const WhatIfRow& row : extras.what_if) {
    const bool is_measured = row.measured_step_s > 0;
    const bool is_known = row.why_not.empty();
    table.rows.push_back(
        {row.setting, row.link,
         is_known ? absl::StrFormat("%.1f", row.step_s * 1e3) : row.why_not,
         is_known && row.total_s > 0 ? absl::StrFormat("%.1f", row.total_s)
                                     : "-",
         is_measured ? absl::StrFormat("%.1f", row.measured_step_s * 1e3) : "-",
         is_measured && is_known
             ? absl::StrFormat("%+.0f",
                               100 * (row.step_s / row.measured_step_s - 1))
             : "-"});
  }
  return table;
}

// A curve for each setting and latency: speed, so that slow links do not hide
// the others.
std::string WhatIfChart(const ReportExtras& extras) {
  Chart chart = {.title = "Steps per second on other links, simulated",
                 .x_label = "link, Gbit/s a direction (log)",
                 .is_log_x = true,
                 .is_signed = true};  // the axis begins with 0
  for (const WhatIfRow& row : extras.what_if) {
    if (!row.why_not.empty() || !(row.step_s > 0)) continue;
    const std::string name =
        row.latency_s > 0
            ? absl::StrFormat("%s, %g ms", row.setting, row.latency_s * 1e3)
            : row.setting;
    auto curve = std::ranges::find(chart.curves, name, &Curve::name);
    if (curve == chart.curves.end()) {
      chart.curves.push_back({.name = name,
                              .style = static_cast<int>(chart.curves.size()),
                              .is_marked = true});
      curve = chart.curves.end() - 1;
    }
    curve->points.push_back({8e-9 * row.bytes_per_s, 1 / row.step_s});
  }
  std::vector<std::string> names;
  size_t most = 0;
  for (Curve& curve : chart.curves) {
    std::ranges::sort(curve.points, {}, &CurvePoint::x);
    names.push_back(curve.name);
    most = std::max(most, curve.points.size());
  }
  if (most < 2) return "";
  return absl::StrCat(LegendHtml(names),
                      "<div class=\"charts one\"><div class=\"card\">",
                      ChartSvg(chart), "</div></div>\n");
}

}  // namespace

std::string WhatIfText(const ReportExtras& extras) {
  return extras.what_if.empty() ? "" : TableText(WhatIfCells(extras));
}

std::string WhatIfHtml(const ReportExtras& extras) {
  if (extras.what_if.empty()) return "";
  return absl::StrCat("<h2>What if</h2>\n", WhatIfChart(extras),
                      TableHtml(WhatIfCells(extras), ""));
}

}  // namespace telegrad
