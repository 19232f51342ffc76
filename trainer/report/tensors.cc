#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"
#include "trainer/report/chart.h"
#include "trainer/report/html.h"

// What a setting did to each tensor.
namespace telegrad {
namespace {

std::string Ratio(int64_t elements, int64_t bytes) {
  if (bytes <= 0) return "-";
  return absl::StrFormat(
      "%.2f", 4.0 * static_cast<double>(elements) / static_cast<double>(bytes));
}

std::string TensorTable(const SettingGroup& group) {
  TableCells table = {
      "Of one worker and step: at most, with frame headers",
      PlainColumns({"tensor", "elements", "codec", "pushed", "ratio",
                    "answered", "ratio", "answer", "reason"}),
      {}};
  for (const TensorBytes& each : group.runs.front()->tensors) {
    table.rows.push_back({each.tensor, absl::StrCat(each.elements), each.codec,
                          FormatBytes(static_cast<double>(each.push_bytes)),
                          Ratio(each.elements, each.push_bytes),
                          FormatBytes(static_cast<double>(each.pull_bytes)),
                          Ratio(each.elements, each.pull_bytes), each.reply,
                          each.reason});
  }
  return TableHtml(table, "");
}

// The tensors whose curves are drawn: the largest, in the order of the network.
std::vector<std::string> LargestTensors(const RunSummary& run) {
  std::map<std::string, int64_t> sizes;
  for (const TensorBytes& each : run.tensors) {
    sizes[each.tensor] = each.elements;
  }
  std::vector<std::string> names;
  for (const MetricPoint& point : run.points) {
    for (const TensorMetrics& each : point.tensors) {
      if (std::find(names.begin(), names.end(), each.tensor) == names.end()) {
        names.push_back(each.tensor);
      }
    }
  }
  std::vector<std::string> largest = names;
  std::stable_sort(largest.begin(), largest.end(),
                   [&sizes](const std::string& a, const std::string& b) {
                     return sizes[a] > sizes[b];
                   });
  largest.resize(std::min<size_t>(largest.size(), kNumStyles));
  std::erase_if(names, [&largest](const std::string& name) {
    return std::find(largest.begin(), largest.end(), name) == largest.end();
  });
  return names;
}

struct Measure {
  double TensorMetrics::*value;
  const char* title;
};
constexpr Measure kMeasures[] = {
    {&TensorMetrics::residual_ratio, "Residual / gradients of late (norms)"},
    {&TensorMetrics::zero_share, "Share sent as 0"},
    {&TensorMetrics::cosine, "Cosine of what was sent and the gradient"}};

Chart LayerChart(const RunSummary& run, const std::vector<std::string>& names,
                 const Measure& measure) {
  Chart chart = {.title = measure.title, .x_label = "steps", .is_signed = true};
  for (size_t i = 0; i < names.size(); ++i) {
    Curve curve = {.name = names[i],
                   .style = static_cast<int>(i),
                   .is_marked = true,
                   .points = {}};
    for (const MetricPoint& point : run.points) {
      for (const TensorMetrics& each : point.tensors) {
        if (each.tensor != names[i]) continue;
        curve.points.push_back(
            {static_cast<double>(point.step), each.*measure.value});
      }
    }
    chart.curves.push_back(std::move(curve));
  }
  return chart;
}

std::string LayerCharts(const RunSummary& run) {
  const std::vector<std::string> names = LargestTensors(run);
  if (names.empty()) return "";
  std::string html = LegendHtml(names);
  absl::StrAppend(&html, "<div class=\"charts\">\n");
  for (const Measure& measure : kMeasures) {
    absl::StrAppend(&html, "<div class=\"card\">",
                    ChartSvg(LayerChart(run, names, measure)), "</div>");
  }
  return html + "</div>\n";
}

}  // namespace

std::string TensorsHtml(const std::vector<SettingGroup>& groups) {
  std::string html;
  for (const SettingGroup& group : groups) {
    if (group.runs.front()->tensors.empty()) continue;
    absl::StrAppend(&html, FoldedHtml(group.setting, TensorTable(group)));
  }
  if (html.empty()) return html;
  return absl::StrCat("<h2>Bytes by tensor</h2>\n", html);
}

std::string LayersHtml(const std::vector<SettingGroup>& groups) {
  std::string html;
  for (const SettingGroup& group : groups) {
    const RunSummary& run = *group.runs.front();
    const std::string charts = LayerCharts(run);
    if (charts.empty()) continue;
    absl::StrAppend(
        &html,
        FoldedHtml(absl::StrCat(group.setting, ", seed ", run.seed), charts));
  }
  if (html.empty()) return html;
  return absl::StrCat(
      "<h2>Codecs by tensor, over time</h2>\n<p class=\"lead\">Of worker 0, "
      "from samples; the largest tensors. All are in metrics.jsonl.</p>\n",
      html);
}

std::string EnvironmentHtml(const std::vector<RunSummary>& runs) {
  if (runs.empty() || runs.front().environment.empty()) return "";
  TableCells table = {"Of worker 0", PlainColumns({"what", "value"}), {}};
  for (const EnvironmentFact& fact : runs.front().environment) {
    table.rows.push_back({fact.what, fact.value});
  }
  const RunSummary& run = runs.front();
  table.rows.push_back({"transport", run.transport});
  table.rows.push_back({"link", run.link});
  return absl::StrCat("<h2>Environment</h2>\n", TableHtml(table, "left"));
}

}  // namespace telegrad
