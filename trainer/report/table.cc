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

// Headings over the columns that share them, from their left edge to their
// right; a line of nothing else is left out.
std::string GroupLine(const std::vector<TableColumn>& columns,
                      const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < columns.size();) {
    size_t end = i, width = 0;
    while (end < columns.size() && columns[end].group == columns[i].group) {
      width += widths[end] + (end > i ? 2 : 0);
      ++end;
    }
    const std::string& name = columns[i].group;
    const size_t fill = width - std::min(width, Width(name));
    const char line_cell = name.empty() ? ' ' : '-';
    const size_t before = fill >= 4 ? fill / 2 : 0;
    absl::StrAppend(&line, i == 0 ? "" : "  ");
    if (before == 0) {
      absl::StrAppend(&line, name, std::string(fill, ' '));
    } else {
      absl::StrAppend(&line, std::string(before - 1, line_cell), " ", name, " ",
                      std::string(fill - before - 1, line_cell));
    }
    i = end;
  }
  return line + "\n";
}

// A heading that is wider than its columns widens the last of them.
void WidenForGroups(const std::vector<TableColumn>& columns,
                    std::vector<size_t>& widths) {
  size_t width = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    const bool is_first = i == 0 || columns[i].group != columns[i - 1].group;
    width = is_first ? widths[i] : width + 2 + widths[i];
    const bool is_last =
        i + 1 == columns.size() || columns[i].group != columns[i + 1].group;
    const size_t wanted = Width(columns[i].group);
    if (is_last && wanted > width) widths[i] += wanted - width;
  }
}

}  // namespace

std::string SummaryTable(const std::vector<RunSummary>& runs) {
  return TableText(MakeTable(GroupBySetting(runs)));
}

std::string TableText(const TableCells& table) {
  std::vector<std::string> names;
  std::vector<size_t> widths;
  for (const TableColumn& column : table.columns) {
    names.push_back(column.name);
    widths.push_back(Width(column.name));
  }
  for (const std::vector<std::string>& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  WidenForGroups(table.columns, widths);
  size_t total = 2 * (widths.size() - 1);
  for (size_t width : widths) total += width;
  std::string out =
      absl::StrCat(table.title, "\n\n", GroupLine(table.columns, widths));
  AppendRow(names, widths, out);
  absl::StrAppend(&out, std::string(total, '-'), "\n");
  for (const std::vector<std::string>& row : table.rows) {
    AppendRow(row, widths, out);
  }
  return out;
}

}  // namespace telegrad
