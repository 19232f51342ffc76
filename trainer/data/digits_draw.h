#pragma once

#include <array>
#include <vector>

#include "trainer/data/digits.h"
#include "trainer/data/digits_glyphs.h"

namespace telegrad {

// Ink on the pixel grid, 0 (none) to 1, row by row from the top.
using Canvas = std::array<float, kDigitPixels>;

// A pen whose mark has full ink up to `radius` pixels from its path and fades
// out over `softness` pixels.
struct Pen {
  float radius;
  float softness;
  float ink;
};

// Lays the pen along straight lines through `path`, in pixels; the darkest ink
// stays where marks overlap. What lies outside the canvas is cut off.
void DrawPath(const std::vector<Point>& path, const Pen& pen, Canvas& canvas);

// The Catmull-Rom spline through `points` as short straight lines.
std::vector<Point> Smooth(const std::vector<Point>& points);

// Within 2^-20 for |turns| <= 1/8, without libm: the same bits everywhere.
// Source: the Taylor polynomials of degree 9 and 8.
float SinTurns(float turns);
float CosTurns(float turns);

}  // namespace telegrad
