#include "trainer/report/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace telegrad {
namespace {

constexpr double kWidth = 420;
constexpr double kMargin = 10;  // for marks at the ends of axes
constexpr double kLeft = 52, kRight = 408, kTop = 30;
constexpr double kUnderLine = 30;  // what is far below stands there

struct Axis {
  double low = 0;
  double high = 1;
  bool is_log = false;
  double At(double value) const {  // 0..1 within the axis
    return is_log ? std::log(value / low) / std::log(high / low)
                  : (value - low) / (high - low);
  }
};

// Where a chart's points are.
struct Frame {
  Axis x, y;
  double bottom = 236;
  double cut = 236;  // above it stands the axis of y
  CurvePoint PlaceOf(const CurvePoint& point) const {
    return {kLeft + x.At(point.x) * (kRight - kLeft),
            point.y < y.low ? cut + kUnderLine / 2
                            : cut - y.At(point.y) * (cut - kTop)};
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

int64_t NumNames(const Chart& chart) {
  return std::ranges::count_if(chart.curves, &Curve::is_named);
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
  const double room = NumNames(chart) > 0 ? 1.3 : 1;
  if (chart.is_log_x && low > 0) {
    return {low / room, std::max(high, low * 2) * room, true};
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

// How many of the sorted values lie far below the others, a third at most:
// without each the others' range is less than 0.4 of what it is with it.
size_t NumFarBelow(const std::vector<double>& values) {
  constexpr double kLeast = 1;  // a range that is no longer is no matter
  size_t first = 0;
  for (size_t i = 0; i < values.size() / 3; ++i) {
    const double whole = std::max(values.back(), 0.0) - values[i];
    const double rest = std::max(values.back(), 0.0) - values[i + 1];
    if (whole > kLeast && rest < 0.4 * whole) first = i + 1;
  }
  return first;
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
  if (chart.is_signed) {
    const size_t first = NumNames(chart) > 0 ? NumFarBelow(values) : 0;
    return WholeAxis(values[first], values.back());
  }
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

std::string LineSvg(const char* css_class, double x1, double y1, double x2,
                    double y2) {
  return absl::StrFormat(
      "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
      "y2=\"%.1f\"/>",
      css_class, x1, y1, x2, y2);
}

std::string TextSvg(const char* css_class, double x, double y,
                    absl::string_view text) {
  return absl::StrFormat("<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                         css_class, x, y, EscapeHtml(text));
}

std::string AxesSvg(const Chart& chart, const Frame& frame) {
  std::string svg;
  for (double tick : Ticks(frame.y)) {
    const double at = frame.cut - frame.y.At(tick) * (frame.cut - kTop);
    svg += LineSvg("grid", kLeft, at, kRight, at) +
           TextSvg("y", kLeft - 6, at + 4, TickText(tick, chart.is_share));
  }
  const double bottom = frame.bottom;
  if (frame.cut < bottom)
    svg += LineSvg("cut", kLeft, frame.cut + 5, kRight, frame.cut + 5);
  for (double tick : Ticks(frame.x)) {
    const double at = kLeft + frame.x.At(tick) * (kRight - kLeft);
    svg += LineSvg("axis", at, bottom, at, bottom + 4) +
           TextSvg("x", at, bottom + 18, TickText(tick, false));
  }
  return svg + LineSvg("axis", kLeft, bottom, kRight, bottom) +
         TextSvg("x", (kLeft + kRight) / 2, bottom + 36, chart.x_label) +
         TextSvg("t", kLeft, 18, chart.title);
}

// Names beside marks, none over another or over a mark.
class NameLabels {
 public:
  explicit NameLabels(double bottom) : bottom_(bottom) {}
  void AddMark(const CurvePoint& at) {
    constexpr double kRadius = 7;
    taken_.push_back(
        {.left = at.x - kRadius, .right = at.x + kRadius, .y = at.y + 4});
  }
  // As near as others let it be; from farther away a line leads to the mark.
  std::string Place(const std::string& name, const CurvePoint& at) {
    constexpr double kCharWidth = 7.2, kAway = 14;
    const double width = kCharWidth * static_cast<double>(name.size());
    Box box;
    bool is_left = false;
    int tries = 0;
    do {
      const int row = (tries / 2 + 1) / 2;
      const double away = kAway + 3 * row;
      is_left = (at.x > (kLeft + kRight) / 2) == (tries % 2 == 0);
      box.left = is_left ? at.x - away - width : at.x + away;
      box.right = box.left + width;
      box.y = at.y + 4 + kLineHeight * row * (tries / 2 % 2 == 0 ? 1 : -1);
    } while (!IsFree(box) && ++tries < 120);
    taken_.push_back(box);
    const std::string leader =
        tries < 2 ? ""
                  : LineSvg("leader", at.x, at.y,
                            is_left ? box.right + 2 : box.left - 2, box.y - 4);
    return leader + TextSvg(is_left ? "n y" : "n",
                            is_left ? box.right : box.left, box.y, name);
  }

 private:
  static constexpr double kLineHeight = 13;
  struct Box {
    double left = 0, right = 0, y = 0;
  };
  bool IsFree(const Box& box) const {
    return box.y > kTop + 6 && box.y < bottom_ && box.left > kLeft &&
           box.right < kRight + kMargin &&
           std::ranges::none_of(taken_, [&](const Box& other) {
             return std::abs(box.y - other.y) < kLineHeight - 1 &&
                    box.left < other.right && other.left < box.right;
           });
  }

  const double bottom_;
  std::vector<Box> taken_;
};

std::string CurveSvg(const Chart& chart, const Curve& curve, const Frame& frame,
                     NameLabels& labels) {
  std::string line, marks;
  for (const CurvePoint& point : curve.points) {
    if (!IsShown(chart, point)) continue;
    const CurvePoint at = frame.PlaceOf(point);
    absl::StrAppendFormat(&line, "%.1f,%.1f ", at.x, at.y);
    if (!curve.is_marked) continue;
    if (curve.is_ringed) {
      absl::StrAppendFormat(
          &marks, "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"9\"/>",
          at.x, at.y);
    }
    if (curve.is_named) {
      const bool is_below = point.y < frame.y.low;
      marks += labels.Place(
          curve.name + (is_below ? absl::StrFormat(" %+.2f", point.y) : ""),
          at);
    }
    absl::StrAppendFormat(
        &marks, "<g>%s<title>%s: %s at %.6g</title></g>\n",
        MarkSvg(curve.style, at.x, at.y), EscapeHtml(curve.name),
        chart.is_share ? absl::StrFormat("%.2f%%", point.y * 100)
                       : absl::StrFormat("%.4f", point.y),
        point.x);
  }
  if (line.empty()) return "";
  return absl::StrFormat(
      "<g class=\"%s\"><polyline class=\"%s\" "
      "points=\"%s\"/>\n%s</g>\n",
      curve.is_grey ? "grey" : absl::StrCat("c", curve.style % kNumStyles),
      curve.is_marked ? "test" : "train", line, marks);
}

// Higher where many names need room.
Frame FrameOf(const Chart& chart) {
  Frame frame = {.x = AxisOfX(chart), .y = AxisOfY(chart)};
  constexpr int64_t kFewNames = 4;
  const int64_t more = std::max<int64_t>(0, NumNames(chart) - kFewNames);
  frame.bottom += 14 * static_cast<double>(more);
  frame.cut = frame.bottom;
  for (const Curve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      if (IsShown(chart, point) && chart.is_signed && point.y < frame.y.low) {
        frame.cut = frame.bottom - kUnderLine;
      }
    }
  }
  return frame;
}

}  // namespace

std::string ChartSvg(const Chart& chart, const Chart* frame_of) {
  const Frame frame = FrameOf(frame_of == nullptr ? chart : *frame_of);
  std::string svg = absl::StrFormat(
      "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n",
      kWidth, frame.bottom + 44, EscapeHtml(chart.title));
  absl::StrAppend(&svg, AxesSvg(chart, frame));
  // A nested viewport cuts off what lies outside; its coordinates stay.
  const std::string box = absl::StrFormat(
      "%.0f %.0f %.0f %.0f", kLeft - kMargin, kTop - 4,
      kRight - kLeft + 2 * kMargin, frame.bottom - kTop + 4 + kMargin);
  absl::StrAppendFormat(&svg,
                        "<svg x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" "
                        "height=\"%.0f\" viewBox=\"%s\">\n",
                        kLeft - kMargin, kTop - 4, kRight - kLeft + 2 * kMargin,
                        frame.bottom - kTop + 4 + kMargin, box);
  NameLabels labels(frame.bottom);
  for (const Curve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      if (curve.is_marked && IsShown(chart, point)) {
        labels.AddMark(frame.PlaceOf(point));
      }
    }
  }
  for (const Curve& curve : chart.curves) {
    absl::StrAppend(&svg, CurveSvg(chart, curve, frame, labels));
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
