#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace telegrad {

struct CurvePoint {
  double x;
  double y;
};

// One curve; `style` picks colour, dashes and the shape of its marks: classes
// c0..c7 of the page's style.
struct Curve {
  std::string name;
  int style = 0;
  bool is_marked = false;  // strong, with a mark at each point; else thin
  bool is_named = false;   // its name stands beside its marks
  bool is_ringed = false;  // a ring around them
  bool is_grey = false;    // in place of its colour
  std::vector<CurvePoint> points = {};
};

struct Chart {
  std::string title;
  std::string x_label;
  bool is_log_x = false;   // points with x <= 0 are left out
  bool is_share = false;   // y is 0..1, shown in per cent
  bool is_signed = false;  // all of y is shown, also below 0
  std::vector<Curve> curves = {};
};

// Colours with their dashes. Curves of the same have different marks, up to
// kNumStyles * kNumMarks curves.
inline constexpr int kNumStyles = 8;
inline constexpr int kNumMarks = 4;

// The mark of a style, about (x, y).
std::string MarkSvg(int style, double x, double y);

// Inline SVG that scales with its box; with the axes of `frame`, where there is
// one. Points that are not finite are left out; what lies above the range of y
// is cut off. Named points far below all others stand under a line, with their
// values, so that the others are not flattened.
std::string ChartSvg(const Chart& chart, const Chart* frame = nullptr);

// &, <, >, " and ' as entities.
std::string EscapeHtml(absl::string_view text);

}  // namespace telegrad
