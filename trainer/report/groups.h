#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/report/results.h"

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
  double to_device = 0, from_device = 0;
  double step_s = 0;
  double step_min_s = 0;
  double samples_per_s = 0;
  double wait_share = 0;  // the share of the workers' time, 0..1
  double byte_limit_s = 0;
  int64_t worker_peak_bytes = 0;  // largest of all seeds
  int64_t server_peak_bytes = 0;
  int64_t model_bytes = 0;
  int jobs = 1;               // most runs at the same time
  bool has_accuracy = false;  // false: a benchmark on synthetic data
};

// In the order in which settings first appear; borrows `runs`.
std::vector<SettingGroup> GroupBySetting(const std::vector<RunSummary>& runs);

// "none" among them, else the only one whose codec that is
// ("none+lr=0.1"), or null.
const SettingGroup* FindNone(const std::vector<SettingGroup>& groups);
// How a setting's accuracy differs from another's, as points of 0..1: the mean
// over the seeds that both have, run by run, since runs of one seed begin with
// the same weights and see the same batches.
struct PairedDifference {
  double mean = 0;
  double half_width = 0;  // half of the mean's 95 % interval (Student's t)
  size_t num_pairs = 0;   // with one, half_width is 0 and says nothing
};
PairedDifference AccuracyDifference(const SettingGroup& group,
                                    const SettingGroup& reference);
// What one seed shows of it: " (one seed: not distinguishable)"; "" of several.
const char* OneSeedNote(const PairedDifference& difference);
// Whether any of them was evaluated on a test set.
bool HaveAccuracy(const std::vector<SettingGroup>& groups);

// "3 settings, ..." of a comparison: network, data, workers, servers, seeds.
std::string DescribeRuns(const std::vector<SettingGroup>& groups);

// A table as cells: text that the terminal and the page share. Neighbouring
// columns of the same group stand under one heading.
struct TableColumn {
  std::string group;
  std::string name;
};
struct TableCells {
  std::string title;
  std::vector<TableColumn> columns;
  std::vector<std::vector<std::string>> rows;  // first cell: the setting
};
// One row per setting. With accuracy when there is any, with the link's byte
// limit when a link was emulated, else with what a benchmark can tell.
TableCells MakeTable(const std::vector<SettingGroup>& groups);
// For a terminal.
std::string TableText(const TableCells& table);

}  // namespace telegrad
