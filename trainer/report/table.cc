#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/report/groups.h"

namespace telegrad {
namespace {

// Columns that `text` takes on a terminal: its UTF-8 characters.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// The first column to the left, numbers to the right.
void AppendRow(const std::vector<std::string>& cells,
               const std::vector<size_t>& widths, std::string& out) {
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string fill(widths[i] - Width(cells[i]), ' ');
    absl::StrAppend(&out, i == 0 ? "" : "  ", i == 0 ? cells[i] : fill,
                    i == 0 ? fill : cells[i]);
  }
  out += '\n';
}

void AppendTable(const TableCells& table, std::string& out) {
  std::vector<size_t> widths;
  for (const std::string& column : table.columns) {
    widths.push_back(Width(column));
  }
  for (const std::vector<std::string>& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  size_t total = 2 * (widths.size() - 1);
  for (size_t width : widths) total += width;
  absl::StrAppend(&out, table.title, "\n");
  AppendRow(table.columns, widths, out);
  absl::StrAppend(&out, std::string(total, '-'), "\n");
  for (const std::vector<std::string>& row : table.rows) {
    AppendRow(row, widths, out);
  }
}

}  // namespace

std::string SummaryTable(const std::vector<RunSummary>& runs) {
  std::string out;
  for (const TableCells& table : MakeTables(GroupBySetting(runs))) {
    if (!out.empty()) out += '\n';
    AppendTable(table, out);
  }
  return out;
}

}  // namespace telegrad
