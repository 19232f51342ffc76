#include "trainer/data/digits_draw.h"

#include <algorithm>
#include <cmath>

namespace telegrad {
namespace {

constexpr float kRadiansPerTurn = 6.2831853f;
constexpr int kLinesPerSpan = 3;
constexpr int kBlock = 8;  // pixels of a row that are drawn at a time

// The first pixel row or column that `from` touches, and one past the last
// that `to` touches. Coordinates are small: the conversion cannot overflow.
int FirstPixel(float from) {
  return std::max(0, static_cast<int>(std::floor(from - 0.5f)));
}
int EndPixel(float to) {
  return std::min(kDigitSide, static_cast<int>(std::floor(to + 0.5f)) + 1);
}

void DrawLine(const Point& a, const Point& b, const Pen& pen, Canvas& canvas) {
  const float reach = pen.radius + pen.softness;
  const float per_pixel = 1.0f / pen.softness;
  const float dx = b.x - a.x;
  const float dy = b.y - a.y;
  const float length2 = dx * dx + dy * dy;
  const float scale = length2 > 0 ? 1.0f / length2 : 0.0f;
  const int x_end = EndPixel(std::max(a.x, b.x) + reach);
  const int y_end = EndPixel(std::max(a.y, b.y) + reach);
  const int x_first = FirstPixel(std::min(a.x, b.x) - reach);
  for (int y = FirstPixel(std::min(a.y, b.y) - reach); y < y_end; ++y) {
    const float py = static_cast<float>(y) + 0.5f - a.y;
    for (int block = x_first; block < x_end; block += kBlock) {
      // The last may lie over the one before: what is drawn twice stays.
      const int begin = std::min(block, kDigitSide - kBlock);
      float* row = canvas.data() + y * kDigitSide + begin;
      for (int i = 0; i < kBlock; ++i) {
        const int x = begin + i;
        const float px = static_cast<float>(x) + 0.5f - a.x;
        const float along = (px * dx + py * dy) * scale;
        const float t = std::min(1.0f, std::max(0.0f, along));
        const float ex = px - t * dx;
        const float ey = py - t * dy;
        const float distance2 = ex * ex + ey * ey;
        const float fade = (reach - std::sqrt(distance2)) * per_pixel;
        const float ink = pen.ink * std::min(1.0f, fade);
        const bool is_near =
            (distance2 < reach * reach) & (x >= x_first) & (x < x_end);
        row[i] = std::max(row[i], is_near ? ink : 0.0f);
      }
    }
  }
}

float Spline(float p0, float p1, float p2, float p3, float t) {
  const float a = 2 * p1;
  const float b = p2 - p0;
  const float c = 2 * p0 - 5 * p1 + 4 * p2 - p3;
  const float d = 3 * p1 - p0 - 3 * p2 + p3;
  return 0.5f * (a + t * (b + t * (c + t * d)));
}

}  // namespace

void DrawPath(const std::vector<Point>& path, const Pen& pen, Canvas& canvas) {
  for (size_t i = 1; i < path.size(); ++i) {
    DrawLine(path[i - 1], path[i], pen, canvas);
  }
}

std::vector<Point> Smooth(const std::vector<Point>& points) {
  if (points.size() < 3) return points;
  std::vector<Point> lines = {points.front()};
  const size_t last = points.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    const Point& p0 = points[i == 0 ? 0 : i - 1];
    const Point& p1 = points[i];
    const Point& p2 = points[i + 1];
    const Point& p3 = points[std::min(i + 2, last)];
    for (int k = 1; k <= kLinesPerSpan; ++k) {
      const float t = static_cast<float>(k) / kLinesPerSpan;
      lines.push_back({Spline(p0.x, p1.x, p2.x, p3.x, t),
                       Spline(p0.y, p1.y, p2.y, p3.y, t)});
    }
  }
  return lines;
}

float SinTurns(float turns) {
  const float r = turns * kRadiansPerTurn;
  const float s = r * r;
  return r * (1 - s * (1 / 6.0f -
                       s * (1 / 120.0f - s * (1 / 5040.0f - s / 362880.0f))));
}

float CosTurns(float turns) {
  const float r = turns * kRadiansPerTurn;
  const float s = r * r;
  return 1 - s * (1 / 2.0f - s * (1 / 24.0f - s * (1 / 720.0f - s / 40320.0f)));
}

}  // namespace telegrad
