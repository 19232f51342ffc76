#include <algorithm>

#include "absl/strings/str_cat.h"
#include "topology/path.h"
#include "topology/picture/svg.h"

namespace telegrad::picture {
namespace {

constexpr double kCellWidth = 62;
constexpr double kCellHeight = 20;
constexpr double kNameWidth = 110;
constexpr size_t kMaxCells = 64;  // in each direction

constexpr PathClass kLegend[] = {
    PathClass::kLoc,  PathClass::kNvl, PathClass::kC2c,
    PathClass::kPix,  PathClass::kPxb, PathClass::kPhb,
    PathClass::kNode, PathClass::kSys, PathClass::kUnknown};

void DrawCell(double x, double y, const PathInfo& path, std::string& svg) {
  absl::StrAppend(&svg, "<g><title>", Escape(path.why), "</title>");
  DrawRectangle(x, y, kCellWidth - 2, kCellHeight - 2,
                absl::StrCat("fill=\"", Colour(path.path), "\" rx=\"3\""), svg);
  DrawText(x + kCellWidth / 2 - 1, y + 13, "text-anchor=\"middle\"",
           Name(path.path), svg);
  absl::StrAppend(&svg, "</g>\n");
}

}  // namespace

const char* Colour(PathClass path) {
  switch (path) {
    case PathClass::kLoc:
      return "#e8e8e8";
    case PathClass::kNvl:
    case PathClass::kC2c:
      return "#76b900";
    case PathClass::kPix:
      return "#a6d854";
    case PathClass::kPxb:
      return "#e6e05a";
    case PathClass::kPhb:
      return "#fdbf6f";
    case PathClass::kNode:
      return "#fc9272";
    case PathClass::kSys:
      return "#de6a73";
    default:
      return "#cccccc";
  }
}

double DrawMatrix(const Matrix& matrix, double x, double y, std::string& svg) {
  if (matrix.rows.empty() || matrix.columns.empty()) return y;
  DrawText(x, y + 14, "class=\"title\"", matrix.title, svg);
  y += 22;
  const size_t num_rows =
      std::min({matrix.rows.size(), matrix.paths->size(), kMaxCells});
  const size_t num_columns = std::min(matrix.columns.size(), kMaxCells);
  for (size_t c = 0; c < num_columns; ++c) {
    DrawText(x + kNameWidth + kCellWidth * (static_cast<double>(c) + 0.5),
             y + 13, "text-anchor=\"middle\" class=\"small\"",
             Escape(matrix.columns[c], 9), svg);
  }
  for (size_t r = 0; r < num_rows; ++r) {
    y += kCellHeight;
    DrawText(x, y + 13, "class=\"small\"", Escape(matrix.rows[r], 18), svg);
    const std::vector<PathInfo>& row = (*matrix.paths)[r];
    for (size_t c = 0; c < std::min(num_columns, row.size()); ++c) {
      DrawCell(x + kNameWidth + kCellWidth * static_cast<double>(c), y, row[c],
               svg);
    }
  }
  return y + kCellHeight + 12;
}

double DrawLegend(double x, double y, std::string& svg) {
  static constexpr const char* kMeanings[] = {
      "one device",      "NVLink",          "chip to chip",
      "one PCIe switch", "switches",        "one host bridge",
      "one package",     "across packages", "unknown"};
  for (size_t i = 0; i < std::size(kLegend); ++i) {
    const double left = x + 168 * static_cast<double>(i);
    DrawCell(left, y, {kLegend[i], kLegend[i], kMeanings[i]}, svg);
    DrawText(left + kCellWidth + 3, y + 13, "class=\"small\"", kMeanings[i],
             svg);
  }
  return y + kCellHeight + 8;
}

}  // namespace telegrad::picture
