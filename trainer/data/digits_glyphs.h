#pragma once

#include <span>

namespace telegrad {

struct Point {
  float x;
  float y;
};

// A pen movement. A smooth one is a Catmull-Rom spline through its points, the
// others are straight between them.
struct Stroke {
  bool is_smooth;
  std::span<const Point> points;
};

using Glyph = std::span<const Stroke>;

inline constexpr int kGlyphsPerDigit = 2;

// One of the ways to write `digit` (0..9), in a box of x -0.6..0.6, y -1..1,
// y downwards.
Glyph GlyphOf(int digit, int variant);

}  // namespace telegrad
