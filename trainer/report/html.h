#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer/report/groups.h"

// Parts of the page.
namespace telegrad {

// A table that scrolls by keyboard where it is too wide; on a narrow screen its
// rows are cards. `css_class`: "left" for cells of text, "slim" for a table
// that stays one there.
std::string TableHtml(const TableCells& table, absl::string_view css_class);

// What is shown when its heading is chosen, by mouse or keyboard.
std::string FoldedHtml(absl::string_view heading, absl::string_view html);

// Colour, dashes and mark of each style, by name.
std::string LegendHtml(const std::vector<std::string>& names);

// Columns without groups.
std::vector<TableColumn> PlainColumns(std::initializer_list<const char*> names);

// The sections; "" where there is nothing to say. ------------------------

// When each setting first had an accuracy (a share), in which time and bytes.
std::string TargetHtml(const std::vector<SettingGroup>& groups, double target);
// Accuracy lost against bytes saved, and which settings no other beats in both.
std::string TradeHtml(const std::vector<SettingGroup>& groups);
// Bytes and ratio of each tensor, by setting.
std::string TensorsHtml(const std::vector<SettingGroup>& groups);
// Residual, sparsity and cosine of each tensor over time, by setting.
std::string LayersHtml(const std::vector<SettingGroup>& groups);
// What the simulator says of other links.
std::string WhatIfHtml(const ReportExtras& extras);
// One step as a time line, by setting.
std::string StepHtml(const std::vector<SettingGroup>& groups);
// Where the runs were made.
std::string EnvironmentHtml(const std::vector<RunSummary>& runs);

// What the trade-off is made of, for its tests. A setting is on the front where
// no other loses no more accuracy and sends no more bytes, one of them less.
struct Trade {
  const SettingGroup* group = nullptr;
  double to_none = 0;  // accuracy, 0..1, less that of `none` or the best
  double bytes = 0;    // a step's, both ways, all workers
  bool is_on_front = false;
};
std::vector<Trade> TradesOf(const std::vector<SettingGroup>& groups);

}  // namespace telegrad
