#pragma once

#include <string>
#include <vector>

#include "trainer/results.h"

namespace telegrad {

// The runs of one setting, averaged over their seeds. Bytes are per step and
// over all workers; docs/numbers.md defines each.
struct SettingGroup {
  std::string setting;
  std::vector<const RunSummary*> runs;
  double accuracy = 0;         // 0..1
  double accuracy_spread = 0;  // sample standard deviation; 0 for one run
  double loss = 0;
  double push_raw = 0, push_wire = 0, pull_raw = 0, pull_wire = 0;
  double step_s = 0;
  double samples_per_s = 0;
  double wait_share = 0;  // of the workers' time, 0..1
  double byte_limit_s = 0;
};

// In the order in which settings first appear; borrows `runs`.
std::vector<SettingGroup> GroupBySetting(const std::vector<RunSummary>& runs);

// The table as cells: text that the terminal and the page share.
struct TableCells {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // first cell: the setting
};
std::vector<TableCells> MakeTables(const std::vector<SettingGroup>& groups);

}  // namespace telegrad
