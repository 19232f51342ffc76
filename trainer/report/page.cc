#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "trainer/report/chart.h"
#include "trainer/report/groups.h"
#include "trainer/results.h"

namespace telegrad {
namespace {

// Colours: Okabe and Ito, Color Universal Design, 2008, darkened where they
// would be faint on white.
constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Telegrad report</title>
<style>
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2330;--dim:#5b6577;
--line:#d9dee7;--card:#f6f8fb;--k0:#333;--k1:#0072b2;--k2:#d55e00;
--k3:#009e73;--k4:#b5538c;--k5:#b8860b;--k6:#3d8fc9;--k7:#7a5230}
@media (prefers-color-scheme:dark){:root{--bg:#12161d;--fg:#e6eaf1;
--dim:#9aa5b8;--line:#2c3442;--card:#1a202a;--k0:#ddd;--k1:#56b4e9;
--k2:#f28e4b;--k3:#2fc79b;--k4:#e08fc0;--k5:#e6b840;--k6:#8fd0f5;--k7:#c79a6b}}
body{margin:0 auto;max-width:1320px;padding:20px 16px 48px;background:var(--bg);
color:var(--fg);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:.2em 0}h2{font-size:1.15rem;margin:1.8em 0 .5em}
p.lead{color:var(--dim);margin:0}pre,.card{background:var(--card);
border:1px solid var(--line);border-radius:8px;padding:10px 12px}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:13px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;
font-variant-numeric:tabular-nums}caption{text-align:left;color:var(--dim);
padding:6px 0}th,td{padding:6px 10px;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:600}
th:first-child,td:first-child{text-align:left}td:first-child{font-weight:600}
.left th,.left td{text-align:left}
.charts{display:grid;gap:14px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr))}
.legend{display:flex;flex-wrap:wrap;gap:6px 18px;margin:0 0 10px;padding:0;
list-style:none}.legend svg{width:34px;height:12px;vertical-align:middle;
margin-right:6px}.charts svg{width:100%;height:auto;display:block}
svg text{fill:var(--dim);font:12px system-ui,sans-serif}
svg .t{fill:var(--fg);font-weight:600;font-size:13px}
svg .x{text-anchor:middle}svg .y{text-anchor:end}
.grid{stroke:var(--line)}.axis{stroke:var(--dim)}
polyline{fill:none;stroke:currentColor;stroke-linejoin:round}
.plain{stroke-width:1.3;opacity:.6}
.dots{stroke-width:1.8;stroke-dasharray:5 3}.m{fill:currentColor}
.c0{color:var(--k0)}.c1{color:var(--k1)}.c2{color:var(--k2)}.c3{color:var(--k3)}
.c4{color:var(--k4)}.c5{color:var(--k5)}.c6{color:var(--k6)}.c7{color:var(--k7)}
dt{font-weight:600;margin-top:.6em}dd{margin:0;color:var(--dim)}
</style></head><body>
)";

constexpr char kDefinitions[] = R"(<h2>What the numbers mean</h2>
<dl class="card">
<dt>accuracy, loss</dt><dd>On the whole test set after the last step; loss is
the mean natural-log cross entropy. With several seeds: the mean, and after
&plusmn; the sample standard deviation of the accuracy.</dd>
<dt>to none</dt><dd>Mean accuracy less that of the setting <code>none</code>, in
percentage points.</dd>
<dt>raw, wire</dt><dd>Bytes per step summed over all workers: raw is what the
same tensors take as 32-bit floats, wire is what was sent, Telegrad's frame
headers included and the framing of the transport below left out.</dd>
<dt>push, pull</dt><dd>Worker to server, and server to worker.</dd>
<dt>ratio</dt><dd>raw / wire; two-way is the same over push and pull
together.</dd>
<dt>step</dt><dd>Median time of a training step; where it was not measured, the
mean. Evaluation is left out.</dd>
<dt>samples/s</dt><dd>Training samples of all workers per second of
training.</dd>
<dt>comm wait</dt><dd>Share of the workers' training time in which they did
nothing but wait for communication.</dd>
<dt>byte limit</dt><dd>Least time of a step that the bytes allow on the
emulated link.</dd>
<dt>peak memory</dt><dd>Largest resident set of any process of the kind.</dd>
</dl>
)";

std::string TableHtml(const TableCells& table, absl::string_view css_class) {
  std::string html = absl::StrCat(
      "<div class=\"scroll\"><table class=\"", css_class, "\"><caption>",
      EscapeHtml(table.title), "</caption><thead><tr>");
  for (const std::string& column : table.columns) {
    absl::StrAppend(&html, "<th>", EscapeHtml(column), "</th>");
  }
  absl::StrAppend(&html, "</tr></thead><tbody>\n");
  for (const std::vector<std::string>& row : table.rows) {
    absl::StrAppend(&html, "<tr>");
    for (const std::string& cell : row) {
      absl::StrAppend(&html, "<td>", EscapeHtml(cell), "</td>");
    }
    absl::StrAppend(&html, "</tr>\n");
  }
  return html + "</tbody></table></div>\n";
}

std::string BytesOrDash(int64_t bytes) {
  return bytes > 0 ? FormatBytes(static_cast<double>(bytes)) : "-";
}

TableCells SettingsTable(const std::vector<SettingGroup>& groups) {
  TableCells table = {
      "How each setting was run",
      {"setting", "seeds", "workers", "servers", "network", "data", "codec",
       "reply", "update on", "threshold", "transport", "link", "byte limit",
       "steps", "model bytes", "peak memory: worker", "server"},
      {}};
  for (const SettingGroup& group : groups) {
    const RunSummary& run = *group.runs.front();
    std::vector<uint64_t> seeds;
    int64_t worker_peak = 0, server_peak = 0;
    for (const RunSummary* each : group.runs) {
      seeds.push_back(each->seed);
      worker_peak = std::max(worker_peak, each->worker_peak_bytes);
      server_peak = std::max(server_peak, each->server_peak_bytes);
    }
    table.rows.push_back(
        {group.setting, absl::StrJoin(seeds, ", "), absl::StrCat(run.workers),
         absl::StrCat(run.servers), run.network, run.data, run.codec, run.reply,
         run.update_on, run.threshold, run.transport, run.link,
         group.byte_limit_s > 0 ? absl::StrCat(group.byte_limit_s * 1e3, " ms")
                                : "-",
         absl::StrCat(run.steps), BytesOrDash(run.model_bytes),
         BytesOrDash(worker_peak), BytesOrDash(server_peak)});
  }
  return table;
}

enum class XValue { kSteps, kSeconds, kMegabytes };

double XOf(const MetricPoint& point, XValue kind) {
  if (kind == XValue::kSteps) return static_cast<double>(point.step);
  if (kind == XValue::kSeconds) return point.seconds;
  return static_cast<double>(point.wire_bytes) / 1e6;
}

void AddCurves(const SettingGroup& group, int colour, XValue kind,
               Chart& chart) {
  for (const RunSummary* run : group.runs) {
    Curve train = {
        .name = group.setting + ", training", .colour = colour, .points = {}};
    Curve test = {.name = group.setting + ", test",
                  .colour = colour,
                  .is_dotted = true,
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
          .title = absl::StrCat(is_share ? "Accuracy " : "Loss ", kind.title),
          .x_label = kind.label,
          .is_log_x = kind.x == XValue::kMegabytes,
          .is_share = is_share,
          .curves = {}};
      for (size_t i = 0; i < groups.size(); ++i) {
        AddCurves(groups[i], static_cast<int>(i) % kNumColours, kind.x, chart);
      }
      absl::StrAppend(&html, "<div class=\"card\">", ChartSvg(chart), "</div>");
    }
  }
  return html + "</div>\n";
}

std::string LegendHtml(const std::vector<SettingGroup>& groups) {
  std::string html = "<ul class=\"legend\">\n";
  for (size_t i = 0; i < groups.size(); ++i) {
    absl::StrAppend(&html, "<li class=\"c", i % kNumColours,
                    "\"><svg viewBox=\"0 0 34 12\"><polyline class=\"dots\" "
                    "points=\"0,6 34,6\"/><circle class=\"m\" cx=\"17\" "
                    "cy=\"6\" r=\"3.5\"/></svg>",
                    EscapeHtml(groups[i].setting), "</li>\n");
  }
  return html +
         "</ul>\n<p class=\"lead\">Dashed with marks: test set. Thin: "
         "training, "
         "mean since the point before. One curve per seed.</p>\n";
}

}  // namespace

std::string ReportHtml(const std::vector<RunSummary>& runs,
                       absl::string_view command_line) {
  const std::vector<SettingGroup> groups = GroupBySetting(runs);
  std::string html = kHead;
  absl::StrAppend(&html, "<h1>Telegrad: what compression did</h1>\n");
  if (!runs.empty()) {
    const RunSummary& run = runs.front();
    absl::StrAppend(&html, "<p class=\"lead\">", EscapeHtml(run.network),
                    " on ", EscapeHtml(run.data), ", ", run.workers,
                    " workers, ", run.servers, " servers, ", groups.size(),
                    " settings</p>\n");
  }
  absl::StrAppend(&html, "<pre>", EscapeHtml(command_line), "</pre>\n");
  for (const TableCells& table : MakeTables(groups)) {
    absl::StrAppend(&html, TableHtml(table, ""));
  }
  absl::StrAppend(&html, "<h2>Curves</h2>\n", LegendHtml(groups),
                  ChartsHtml(groups), "<h2>Settings</h2>\n",
                  TableHtml(SettingsTable(groups), "left"), kDefinitions,
                  "</body></html>\n");
  return html;
}

}  // namespace telegrad
