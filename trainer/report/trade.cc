#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"
#include "trainer/report/chart.h"
#include "trainer/report/html.h"

// What an accuracy costs: time and bytes to reach it, and what is lost for
// bytes that are saved.
namespace telegrad {
namespace {

struct Reached {
  size_t count = 0;  // seeds
  double steps = 0, seconds = 0, bytes = 0;
};

Reached ReachedBy(const SettingGroup& group, double target) {
  Reached reached;
  for (const RunSummary* run : group.runs) {
    const MetricPoint* const point = FirstAt(*run, target);
    if (point == nullptr) continue;
    ++reached.count;
    reached.steps += static_cast<double>(point->step);
    reached.seconds += point->seconds;
    reached.bytes += static_cast<double>(point->wire_bytes);
  }
  if (reached.count == 0) return reached;
  const auto count = static_cast<double>(reached.count);
  reached.steps /= count;
  reached.seconds /= count;
  reached.bytes /= count;
  return reached;
}

std::string TimesLess(double none, double value) {
  if (!(none > 0) || !(value > 0)) return "-";
  return absl::StrFormat("%.2f", none / value);
}

double RawBytes(const SettingGroup& group) {
  return group.push_raw + group.pull_raw;
}

// Points that name themselves, so that no colour is needed to read them.
std::string TradeChart(const std::vector<Trade>& trades) {
  Chart chart = {.title = "Accuracy to none (points) for bytes saved",
                 .x_label = "floats' bytes / bytes sent, both ways (log)",
                 .is_log_x = true,
                 .is_signed = true};
  Curve front = {.name = "front", .style = 0, .points = {}};
  for (const Trade& trade : trades) {
    const CurvePoint at = {RawBytes(*trade.group) / trade.bytes,
                           100 * trade.to_none};
    Curve one = {.name = trade.group->setting,
                 .style = static_cast<int>(chart.curves.size()),
                 .is_marked = true,
                 .is_named = true,
                 .is_ringed = trade.is_on_front,
                 .points = {at}};
    chart.curves.push_back(std::move(one));
    if (trade.is_on_front) front.points.push_back(at);
  }
  std::sort(front.points.begin(), front.points.end(),
            [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
  chart.curves.push_back(std::move(front));
  return absl::StrCat("<div class=\"charts one\"><div class=\"card\">",
                      ChartSvg(chart), "</div></div>\n");
}

}  // namespace

const MetricPoint* FirstAt(const RunSummary& run, double target) {
  for (const MetricPoint& point : run.points) {
    if (point.test_accuracy >= 0 && point.test_accuracy >= target) {
      return &point;
    }
  }
  return nullptr;
}

std::string TargetHtml(const std::vector<SettingGroup>& groups, double target) {
  if (!(target > 0) || !HaveAccuracy(groups)) return "";
  TableCells table = {
      absl::StrFormat("First evaluation with %.6g %%; means of the seeds that "
                      "had one",
                      100 * target),
      PlainColumns({"setting", "seeds", "steps", "seconds", "to none",
                    "bytes of all workers", "to none"}),
      {}};
  const SettingGroup* const none = FindNone(groups);
  const Reached of_none =
      none == nullptr ? Reached{} : ReachedBy(*none, target);
  for (const SettingGroup& group : groups) {
    const Reached reached = ReachedBy(group, target);
    const bool has_any = reached.count > 0;
    const bool has_none = has_any && of_none.count > 0;
    table.rows.push_back(
        {group.setting, absl::StrCat(reached.count, " of ", group.runs.size()),
         has_any ? absl::StrFormat("%.0f", reached.steps) : "never",
         has_any ? absl::StrFormat("%.1f", reached.seconds) : "-",
         has_none ? TimesLess(of_none.seconds, reached.seconds) : "-",
         has_any ? FormatBytes(reached.bytes) : "-",
         has_none ? TimesLess(of_none.bytes, reached.bytes) : "-"});
  }
  return absl::StrCat("<h2>To an accuracy</h2>\n", TableHtml(table, ""));
}

std::vector<Trade> TradesOf(const std::vector<SettingGroup>& groups) {
  const SettingGroup* reference = FindNone(groups);
  double best = reference == nullptr ? 0 : reference->accuracy;
  for (const SettingGroup& group : groups) {
    if (reference == nullptr) best = std::max(best, group.accuracy);
  }
  std::vector<Trade> trades;
  for (const SettingGroup& group : groups) {
    const double bytes = group.push_wire + group.pull_wire;
    if (!group.has_accuracy || !(bytes > 0)) continue;
    trades.push_back(
        {.group = &group, .to_none = group.accuracy - best, .bytes = bytes});
  }
  for (Trade& trade : trades) {
    trade.is_on_front = std::none_of(
        trades.begin(), trades.end(), [&trade](const Trade& other) {
          return other.to_none >= trade.to_none && other.bytes <= trade.bytes &&
                 (other.to_none > trade.to_none || other.bytes < trade.bytes);
        });
  }
  return trades;
}

std::string TradeHtml(const std::vector<SettingGroup>& groups) {
  const std::vector<Trade> trades = TradesOf(groups);
  if (trades.size() < 2) return "";
  const char* const reference =
      FindNone(groups) != nullptr ? "to none" : "to the best";
  TableCells table = {"",
                      PlainColumns({"setting", "accuracy %", reference, "ratio",
                                    "step ms", "front"}),
                      {}};
  for (const Trade& trade : trades) {
    const SettingGroup& group = *trade.group;
    table.rows.push_back(
        {group.setting, absl::StrFormat("%.2f", 100 * group.accuracy),
         absl::StrFormat("%+.2f", 100 * trade.to_none),
         absl::StrFormat("%.2f", RawBytes(group) / trade.bytes),
         absl::StrFormat("%.3g", 1e3 * group.step_s),
         trade.is_on_front ? "yes" : ""});
  }
  return absl::StrCat(
      "<h2>Accuracy for bytes</h2>\n<p class=\"lead\">With a ring and joined "
      "by a line: the front, settings that no other beats in both. Below 0: "
      "accuracy is lost. Under a broken line: what lies far below.</p>\n",
      TradeChart(trades), TableHtml(table, "slim"));
}

}  // namespace telegrad
