#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "topology/machine.h"
#include "topology/picture/layout.h"

namespace telegrad::picture {

// `text` for XML, of at most `max_chars`; what is not printable ASCII is '?'.
std::string Escape(absl::string_view text, size_t max_chars = 200);

const char* Colour(PathClass path);

void DrawRectangle(double x, double y, double width, double height,
                   absl::string_view style, std::string& svg);
// `y` is the base line.
void DrawText(double x, double y, absl::string_view style,
              absl::string_view text, std::string& svg);

// The devices below `box`, or all else.
void DrawBoxes(const Box& box, bool devices, std::string& svg);

// NVLinks between the GPUs' boxes, and to a bar of NVSwitches at `y`; returns
// where the drawing ends.
double DrawNvlinks(const Machine& machine, const Box& root, double y,
                   std::string& svg);

// A matrix of paths, coloured, with its rows' and columns' names; returns where
// it ends.
struct Matrix {
  std::string title;
  const std::vector<std::vector<PathInfo>>* paths = nullptr;
  std::vector<std::string> rows;
  std::vector<std::string> columns;
};
double DrawMatrix(const Matrix& matrix, double x, double y, std::string& svg);
double DrawLegend(double x, double y, std::string& svg);

}  // namespace telegrad::picture
