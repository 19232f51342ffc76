#include "perf/network/page.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "perf/network/sizes.h"

namespace telegrad::perf {
namespace {

constexpr double kLeft = 62, kRight = 460, kTop = 34, kBottom = 250;

using Value = std::function<double(const NetworkRow&)>;

struct Curve {
  const char* name;
  const char* colour;
  Value value;
};

struct Plot {
  const char* title;
  const char* unit;
  std::vector<Curve> curves;
};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// A logarithmic axis over whole powers of `base`.
class Axis {
 public:
  Axis(double low, double high, double base, double from, double to)
      : base_(base), from_(from), to_(to) {
    first_ = std::floor(std::log(low) / std::log(base) + 1e-9);
    last_ =
        std::max(first_ + 1, std::ceil(std::log(high) / std::log(base) - 1e-9));
  }
  double At(double value) const {
    const double power = std::log(value) / std::log(base_);
    return from_ + (power - first_) / (last_ - first_) * (to_ - from_);
  }
  std::vector<double> Ticks() const {
    const double step = std::max(1.0, std::ceil((last_ - first_) / 8));
    std::vector<double> ticks;
    for (double power = first_; power <= last_; power += step) {
      ticks.push_back(std::pow(base_, power));
    }
    return ticks;
  }

 private:
  double base_, from_, to_, first_, last_;
};

std::string AxesSvg(const Plot& plot, const Axis& x, const Axis& y) {
  std::string svg = absl::StrFormat(
      "<text x=\"%.0f\" y=\"18\" font-weight=\"bold\">%s, %s</text>\n", kLeft,
      plot.title, plot.unit);
  for (const double tick : y.Ticks()) {
    absl::StrAppendFormat(
        &svg,
        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
        "y2=\"%.1f\"/><text text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%g"
        "</text>\n",
        kLeft, kRight, y.At(tick), y.At(tick), kLeft - 5, y.At(tick) + 4, tick);
  }
  for (const double tick : x.Ticks()) {
    absl::StrAppendFormat(
        &svg,
        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
        "y2=\"%.1f\"/><text text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">%s"
        "</text>\n",
        x.At(tick), x.At(tick), kTop, kBottom, x.At(tick), kBottom + 16,
        FormatSize(static_cast<size_t>(tick)));
  }
  return svg;
}

std::string CurveSvg(const Curve& curve, const std::vector<NetworkRow>& rows,
                     const Axis& x, const Axis& y, double legend_x) {
  std::string points, marks;
  for (const NetworkRow& row : rows) {
    const double value = curve.value(row);
    if (row.size_bytes == 0 || value <= 0) continue;
    const double px = x.At(static_cast<double>(row.size_bytes));
    const double py = y.At(value);
    absl::StrAppendFormat(&points, "%.1f,%.1f ", px, py);
    absl::StrAppendFormat(
        &marks,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"><title>%s "
        "bytes: %.4g</title></circle>\n",
        px, py, curve.colour, FormatSize(row.size_bytes), value);
  }
  return absl::StrFormat(
      "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" "
      "points=\"%s\"/>\n%s<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s</text>\n",
      curve.colour, points, marks, legend_x, kBottom + 34, curve.colour,
      curve.name);
}

// Empty when there is nothing to draw.
std::string PlotSvg(const Plot& plot, const std::vector<NetworkRow>& rows) {
  double low_x = 0, high_x = 0, low_y = 0, high_y = 0;
  for (const NetworkRow& row : rows) {
    for (const Curve& curve : plot.curves) {
      const double value = curve.value(row);
      if (row.size_bytes == 0 || value <= 0) continue;
      const auto size = static_cast<double>(row.size_bytes);
      low_x = low_x == 0 ? size : std::min(low_x, size);
      high_x = std::max(high_x, size);
      low_y = low_y == 0 ? value : std::min(low_y, value);
      high_y = std::max(high_y, value);
    }
  }
  if (low_x == 0) return "";
  const Axis x(low_x, high_x, 2, kLeft, kRight);
  const Axis y(low_y, high_y, 10, kBottom, kTop);
  std::string svg = absl::StrCat(
      "<svg viewBox=\"0 0 480 295\" width=\"480\" height=\"295\">\n",
      AxesSvg(plot, x, y));
  double legend_x = kLeft;
  for (const Curve& curve : plot.curves) {
    svg += CurveSvg(curve, rows, x, y, legend_x);
    legend_x += 110;
  }
  return svg + "</svg>\n";
}

std::string TableOf(const std::vector<NetworkRow>& rows) {
  std::string html =
      "<table><tr><th>bytes</th><th>iterations</th><th>min us</th>"
      "<th>p50 us</th><th>p99 us</th><th>max us</th><th>algbw GB/s</th>"
      "<th>busbw GB/s</th><th>wire bytes</th><th>algorithm</th>"
      "<th>checked</th></tr>\n";
  for (const NetworkRow& row : rows) {
    absl::StrAppendFormat(
        &html,
        "<tr><td>%s</td><td>%d</td><td>%.2f</td><td>%.2f</td><td>%.2f</td>"
        "<td>%.2f</td><td>%.3f</td><td>%.3f</td><td>%.0f</td><td>%s</td>"
        "<td>%s</td></tr>\n",
        row.profile.empty()
            ? FormatSize(row.size_bytes)
            : absl::StrCat(Escaped(row.profile), ", ", row.size_bytes),
        row.result.iterations, row.result.min_us, row.result.p50_us,
        row.result.p99_us, row.result.max_us, row.algbw_GBps(),
        row.busbw_GBps(), row.wire_bytes, Escaped(row.algorithm), row.checked);
  }
  return html + "</table>\n";
}

constexpr char kStyle[] =
    "body{font:14px sans-serif;margin:24px;max-width:1020px}"
    "svg{font-size:11px}.grid{stroke:#ddd}"
    "table{border-collapse:collapse}td,th{padding:2px 8px;text-align:right;"
    "border-bottom:1px solid #ddd}code{background:#f3f3f3}";

}  // namespace

std::string HtmlPage(const std::string& heading, const std::string& transport,
                     const std::string& command,
                     const std::vector<NetworkRow>& rows) {
  const Plot bandwidth = {
      "bandwidth",
      "GB/s",
      {{"algbw", "#1f6fb4",
        [](const NetworkRow& row) { return row.algbw_GBps(); }},
       {"busbw", "#c0562b",
        [](const NetworkRow& row) { return row.busbw_GBps(); }}}};
  const Plot time = {"time",
                     "us",
                     {{"min", "#7a9f35",
                       [](const NetworkRow& row) { return row.result.min_us; }},
                      {"p50", "#1f6fb4",
                       [](const NetworkRow& row) { return row.result.p50_us; }},
                      {"p99", "#c0562b", [](const NetworkRow& row) {
                         return row.result.p99_us;
                       }}}};
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<title>telegrad-perf</title><style>",
      kStyle, "</style></head><body>\n<h1>", Escaped(heading), "</h1>\n<p>",
      Escaped(transport), "</p>\n<p><code>", Escaped(command), "</code></p>\n",
      PlotSvg(bandwidth, rows), PlotSvg(time, rows), TableOf(rows),
      "</body></html>\n");
}

}  // namespace telegrad::perf
