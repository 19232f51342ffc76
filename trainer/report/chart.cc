#include "trainer/report/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace telegrad {
namespace {

constexpr double kWidth = 420, kHeight = 280;
constexpr double kMargin = 10;  // for marks at the ends of axes
constexpr double kLeft = 52, kRight = 408, kTop = 30, kBottom = 236;

struct Axis {
  double low = 0;
  double high = 1;
  bool is_log = false;
  double At(double value) const {  // 0..1 within the axis
    return is_log ? std::log(value / low) / std::log(high / low)
                  : (value - low) / (high - low);
  }
};

bool IsShown(const Chart& chart, const CurvePoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) &&
         (!chart.is_log_x || point.x > 0);
}

double NiceStep(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(range / 4)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (range / (factor * power) <= 5) return factor * power;
  }
  return 10 * power;
}

std::vector<double> Ticks(const Axis& axis) {
  std::vector<double> ticks;
  if (!axis.is_log) {
    const double step = NiceStep(axis.high - axis.low);
    const double first = std::ceil(axis.low / step - 1e-9);
    for (int i = 0; i < 12; ++i) {
      const double tick = (first + i) * step;
      if (tick > axis.high + step * 1e-6) break;
      ticks.push_back(tick);
    }
    return ticks;
  }
  const bool is_short = axis.high / axis.low < 300;
  double power = std::pow(10.0, std::floor(std::log10(axis.low)));
  for (; power <= axis.high && ticks.size() < 40; power *= 10) {
    for (double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !is_short) break;
      const double tick = factor * power;
      if (tick >= axis.low * 0.999 && tick <= axis.high * 1.001) {
        ticks.push_back(tick);
      }
    }
  }
  return ticks;
}

Axis AxisOfX(const Chart& chart) {
  double low = 0, high = 0;
  bool is_first = true;
  for (const Curve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      if (!IsShown(chart, point)) continue;
      low = is_first ? point.x : std::min(low, point.x);
      high = is_first ? point.x : std::max(high, point.x);
      is_first = false;
    }
  }
  const bool has_names =
      std::any_of(chart.curves.begin(), chart.curves.end(),
                  [](const Curve& curve) { return curve.is_named; });
  if (chart.is_log_x && low > 0 && has_names) {
    return {low / 1.3, std::max(high, low * 2) * 1.3, true};
  }
  if (chart.is_log_x && low > 0) {
    return {low, std::max(high, low * 2), true};
  }
  return {0, high > 0 ? high : 1, false};
}

// With 0, and a quarter of a step or more above the highest for its ring.
Axis WholeAxis(double least, double most) {
  const double low = std::min(0.0, least);
  const double high = std::max(0.0, most);
  const double step = NiceStep(std::max(high - low, 1e-3));
  return {std::floor(low / step) * step,
          (std::floor(high / step + 0.25) + 1) * step, false};
}

// The end of training is what one wants to read: the highest losses and the
// lowest accuracies, a tenth of all points, may lie outside.
Axis AxisOfY(const Chart& chart) {
  std::vector<double> values;
  for (const Curve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      if (IsShown(chart, point)) values.push_back(point.y);
    }
  }
  if (values.empty()) return {0, 1, false};
  std::sort(values.begin(), values.end());
  if (chart.is_signed) return WholeAxis(values.front(), values.back());
  const size_t tenth = values.size() / 10;
  const double low = chart.is_share ? values[tenth] : 0;
  const double top = chart.is_share ? 1 : values[values.size() - 1 - tenth];
  const double range = std::max(top - low, 1e-3);
  const double step = NiceStep(range);
  return {std::max(0.0, std::floor(low / step) * step),
          std::ceil((low + range) / step - 1e-9) * step, false};
}

std::string TickText(double value, bool is_share) {
  if (is_share) return absl::StrFormat("%.6g%%", value * 100);
  if (value >= 1e4) return absl::StrFormat("%.6gk", value / 1000);
  return absl::StrFormat("%.6g", std::abs(value) < 1e-12 ? 0.0 : value);
}

std::string AxesSvg(const Chart& chart, const Axis& x, const Axis& y) {
  std::string svg;
  for (double tick : Ticks(y)) {
    const double at = kBottom - y.At(tick) * (kBottom - kTop);
    absl::StrAppendFormat(
        &svg,
        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
        "y2=\"%.1f\"/><text class=\"y\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
        kLeft, kRight, at, at, kLeft - 6, at + 4,
        TickText(tick, chart.is_share));
  }
  for (double tick : Ticks(x)) {
    const double at = kLeft + x.At(tick) * (kRight - kLeft);
    absl::StrAppendFormat(
        &svg,
        "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
        "y2=\"%.1f\"/><text class=\"x\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
        at, at, kBottom, kBottom + 4, at, kBottom + 18, TickText(tick, false));
  }
  absl::StrAppendFormat(
      &svg,
      "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
      "y2=\"%.1f\"/><text class=\"x\" x=\"%.1f\" y=\"%.1f\">%s</text>\n"
      "<text class=\"t\" x=\"%.1f\" y=\"18\">%s</text>\n",
      kLeft, kRight, kBottom, kBottom, (kLeft + kRight) / 2, kHeight - 8,
      EscapeHtml(chart.x_label), kLeft, EscapeHtml(chart.title));
  return svg;
}

// Names beside marks, none over another or over a mark.
class NameLabels {
 public:
  void AddMark(double x, double y) {
    constexpr double kRadius = 7;
    taken_.push_back({.left = x - kRadius, .right = x + kRadius, .y = y + 4});
  }
  // On the side that has room, as near as others let it be.
  std::string Place(const std::string& name, double x, double y) {
    constexpr double kCharWidth = 8, kAway = 12;
    const bool is_left = x > (kLeft + kRight) / 2;
    const double width = kCharWidth * static_cast<double>(name.size());
    Box box = {.left = is_left ? x - kAway - width : x + kAway, .y = y + 4};
    box.right = box.left + width;
    for (int tries = 1; tries < 20 && !IsFree(box); ++tries) {
      const double step = kLineHeight * ((tries + 1) / 2);
      box.y = y + 4 + (tries % 2 == 1 ? -step : step);
    }
    taken_.push_back(box);
    return absl::StrFormat(
        "<text class=\"n\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>",
        is_left ? box.right : box.left, box.y, is_left ? "end" : "start",
        EscapeHtml(name));
  }

 private:
  static constexpr double kLineHeight = 13;
  struct Box {
    double left = 0, right = 0, y = 0;
  };
  bool IsFree(const Box& box) const {
    return box.y > kTop && box.y < kBottom + 4 &&
           std::none_of(taken_.begin(), taken_.end(), [&](const Box& other) {
             return std::abs(box.y - other.y) < kLineHeight - 1 &&
                    box.left < other.right && other.left < box.right;
           });
  }

  std::vector<Box> taken_;
};

CurvePoint PlaceOf(const CurvePoint& point, const Axis& x, const Axis& y) {
  return {kLeft + x.At(point.x) * (kRight - kLeft),
          kBottom - y.At(point.y) * (kBottom - kTop)};
}

void AddMarks(const Chart& chart, const Axis& x, const Axis& y,
              NameLabels& labels) {
  for (const Curve& curve : chart.curves) {
    if (!curve.is_marked) continue;
    for (const CurvePoint& point : curve.points) {
      if (!IsShown(chart, point)) continue;
      const CurvePoint at = PlaceOf(point, x, y);
      labels.AddMark(at.x, at.y);
    }
  }
}

std::string CurveSvg(const Chart& chart, const Curve& curve, const Axis& x,
                     const Axis& y, NameLabels& labels) {
  std::string line, marks;
  for (const CurvePoint& point : curve.points) {
    if (!IsShown(chart, point)) continue;
    const auto [px, py] = PlaceOf(point, x, y);
    absl::StrAppendFormat(&line, "%.1f,%.1f ", px, py);
    if (!curve.is_marked) continue;
    if (curve.is_ringed) {
      absl::StrAppendFormat(
          &marks, "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"9\"/>",
          px, py);
    }
    if (curve.is_named) marks += labels.Place(curve.name, px, py);
    absl::StrAppendFormat(&marks, "<g>%s<title>%s: %s at %.6g</title></g>\n",
                          MarkSvg(curve.style, px, py), EscapeHtml(curve.name),
                          chart.is_share
                              ? absl::StrFormat("%.2f%%", point.y * 100)
                              : absl::StrFormat("%.4f", point.y),
                          point.x);
  }
  if (line.empty()) return "";
  return absl::StrFormat(
      "<g class=\"c%d\"><polyline class=\"%s\" "
      "points=\"%s\"/>\n%s</g>\n",
      curve.style % kNumStyles, curve.is_marked ? "test" : "train", line,
      marks);
}

}  // namespace

std::string ChartSvg(const Chart& chart) {
  const Axis x = AxisOfX(chart);
  const Axis y = AxisOfY(chart);
  std::string svg = absl::StrFormat(
      "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n",
      kWidth, kHeight, EscapeHtml(chart.title));
  absl::StrAppend(&svg, AxesSvg(chart, x, y));
  // A nested viewport cuts off what lies outside; its coordinates stay.
  absl::StrAppendFormat(&svg,
                        "<svg x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" "
                        "height=\"%.0f\" viewBox=\"%.0f %.0f %.0f %.0f\">\n",
                        kLeft - kMargin, kTop - 4, kRight - kLeft + 2 * kMargin,
                        kBottom - kTop + 4 + kMargin, kLeft - kMargin, kTop - 4,
                        kRight - kLeft + 2 * kMargin,
                        kBottom - kTop + 4 + kMargin);
  NameLabels labels;
  AddMarks(chart, x, y, labels);
  for (const Curve& curve : chart.curves) {
    absl::StrAppend(&svg, CurveSvg(chart, curve, x, y, labels));
  }
  return svg + "</svg></svg>\n";
}

std::string MarkSvg(int style, double x, double y) {
  switch ((style + style / kNumStyles) % kNumMarks) {
    case 0:
      return absl::StrFormat(
          "<circle class=\"m\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x, y);
    case 1:
      return absl::StrFormat(
          "<rect class=\"m\" x=\"%.1f\" y=\"%.1f\" width=\"7.4\" "
          "height=\"7.4\"/>",
          x - 3.7, y - 3.7);
    case 2:
      return absl::StrFormat(
          "<polygon class=\"m\" points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\"/>", x,
          y - 5, x + 4.8, y + 3.6, x - 4.8, y + 3.6);
    default:
      return absl::StrFormat(
          "<polygon class=\"m\" points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f "
          "%.1f,%.1f\"/>",
          x, y - 5.2, x + 5.2, y, x, y + 5.2, x - 5.2, y);
  }
}

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

}  // namespace telegrad
