#include "trainer/report/html.h"

#include "absl/strings/str_cat.h"
#include "trainer/report/chart.h"

namespace telegrad {
namespace {

// Each run of columns under one heading; nothing when there are no headings.
std::string GroupRowHtml(const std::vector<TableColumn>& columns) {
  std::string row;
  bool has_any = false;
  for (size_t i = 0; i < columns.size();) {
    size_t end = i;
    while (end < columns.size() && columns[end].group == columns[i].group) {
      ++end;
    }
    has_any = has_any || !columns[i].group.empty();
    absl::StrAppend(&row, "<th scope=\"colgroup\" colspan=\"", end - i, "\">",
                    EscapeHtml(columns[i].group), "</th>");
    i = end;
  }
  return has_any ? absl::StrCat("<tr class=\"g\">", row, "</tr>") : "";
}

}  // namespace

// On a narrow screen `data-label` says what a cell is.
std::string TableHtml(const TableCells& table, absl::string_view css_class) {
  const std::string title = EscapeHtml(table.title);
  std::string html =
      absl::StrCat("<div class=\"scroll", css_class == "slim" ? "" : " cards",
                   "\" role=\"region\" tabindex=\"0\" aria-label=\"",
                   title.empty() ? "table" : title, "\"><table class=\"",
                   css_class, "\"><caption>", title, "</caption><thead>",
                   GroupRowHtml(table.columns), "<tr>");
  for (const TableColumn& column : table.columns) {
    absl::StrAppend(&html, "<th scope=\"col\">", EscapeHtml(column.name),
                    "</th>");
  }
  absl::StrAppend(&html, "</tr></thead><tbody>\n");
  for (const std::vector<std::string>& row : table.rows) {
    absl::StrAppend(&html, "<tr>");
    for (size_t i = 0; i < row.size(); ++i) {
      const TableColumn& column = table.columns[i];
      const std::string label = absl::StrCat(
          column.group, column.group.empty() ? "" : ": ", column.name);
      absl::StrAppend(&html, "<td data-label=\"", EscapeHtml(label), "\">",
                      EscapeHtml(row[i]), "</td>");
    }
    absl::StrAppend(&html, "</tr>\n");
  }
  return html + "</tbody></table></div>\n";
}

std::string FoldedHtml(absl::string_view heading, absl::string_view html) {
  return absl::StrCat("<details><summary>", EscapeHtml(heading), "</summary>\n",
                      html, "</details>\n");
}

std::string LegendHtml(const std::vector<std::string>& names) {
  std::string html = "<ul class=\"legend\">\n";
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&html, "<li class=\"c", i % kNumStyles,
                    "\"><svg viewBox=\"0 0 48 14\" aria-hidden=\"true\">"
                    "<polyline class=\"test\" points=\"0,7 48,7\"/>",
                    MarkSvg(static_cast<int>(i), 24, 7), "</svg>",
                    EscapeHtml(names[i]), "</li>\n");
  }
  return html + "</ul>\n";
}

std::vector<TableColumn> PlainColumns(
    std::initializer_list<const char*> names) {
  std::vector<TableColumn> columns;
  for (const char* name : names) columns.push_back({"", name});
  return columns;
}

}  // namespace telegrad
