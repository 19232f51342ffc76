#include "trainer/report/groups.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"

namespace telegrad {
namespace {

double Ratio(double raw, double wire) { return wire > 0 ? raw / wire : 0; }

void Add(SettingGroup& group, const RunSummary& run) {
  const double steps = run.steps > 0 ? static_cast<double>(run.steps) : 1;
  const double mean_step = run.seconds / steps;
  group.runs.push_back(&run);
  group.accuracy += run.accuracy;
  group.loss += run.loss;
  group.push_raw += static_cast<double>(run.push_raw_bytes) / steps;
  group.push_wire += static_cast<double>(run.push_wire_bytes) / steps;
  group.pull_raw += static_cast<double>(run.pull_raw_bytes) / steps;
  group.pull_wire += static_cast<double>(run.pull_wire_bytes) / steps;
  group.step_s += run.step_seconds_p50 > 0 ? run.step_seconds_p50 : mean_step;
  group.samples_per_s += run.samples_per_s;
  const double worker_seconds = run.seconds * run.workers;
  if (worker_seconds > 0) group.wait_share += run.comm_wait_s / worker_seconds;
  group.byte_limit_s += run.byte_limit_s;
}

void Average(SettingGroup& group) {
  const double count = static_cast<double>(group.runs.size());
  for (double* value :
       {&group.accuracy, &group.loss, &group.push_raw, &group.push_wire,
        &group.pull_raw, &group.pull_wire, &group.step_s, &group.samples_per_s,
        &group.wait_share, &group.byte_limit_s}) {
    *value /= count;
  }
  if (count < 2) return;
  double squares = 0;
  for (const RunSummary* run : group.runs) {
    const double difference = run->accuracy - group.accuracy;
    squares += difference * difference;
  }
  group.accuracy_spread = std::sqrt(squares / (count - 1));
}

std::string Times(double ratio) {
  return ratio > 0 ? absl::StrFormat("%.2fx", ratio) : "-";
}

std::string Milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return absl::StrFormat("%.*f ms", ms < 10 ? 2 : (ms < 100 ? 1 : 0), ms);
}

std::string Accuracy(const SettingGroup& group) {
  std::string text = absl::StrFormat("%.2f %%", group.accuracy * 100);
  if (group.runs.size() > 1) {
    absl::StrAppendFormat(&text, " ± %.2f", group.accuracy_spread * 100);
  }
  return text;
}

std::string ToNone(const SettingGroup& group, const SettingGroup* none) {
  if (none == nullptr || none == &group) return "-";
  return absl::StrFormat("%+.2f pt", (group.accuracy - none->accuracy) * 100);
}

}  // namespace

std::vector<SettingGroup> GroupBySetting(const std::vector<RunSummary>& runs) {
  std::vector<SettingGroup> groups;
  for (const RunSummary& run : runs) {
    SettingGroup* group = nullptr;
    for (SettingGroup& candidate : groups) {
      if (candidate.setting == run.setting) group = &candidate;
    }
    if (group == nullptr) {
      groups.emplace_back();
      group = &groups.back();
      group->setting = run.setting;
    }
    Add(*group, run);
  }
  for (SettingGroup& group : groups) Average(group);
  return groups;
}

std::vector<TableCells> MakeTables(const std::vector<SettingGroup>& groups) {
  const SettingGroup* none = nullptr;
  for (const SettingGroup& group : groups) {
    if (group.setting == "none") none = &group;
  }
  TableCells training = {"Training",
                         {"setting", "seeds", "accuracy", "to none", "loss",
                          "step", "samples/s", "comm wait"},
                         {}};
  TableCells bytes = {"Bytes per step, all workers, headers included",
                      {"setting", "push raw", "push wire", "push ratio",
                       "pull raw", "pull wire", "pull ratio", "two-way"},
                      {}};
  for (const SettingGroup& group : groups) {
    training.rows.push_back(
        {group.setting, absl::StrCat(group.runs.size()), Accuracy(group),
         ToNone(group, none), absl::StrFormat("%.4f", group.loss),
         Milliseconds(group.step_s),
         absl::StrFormat("%.0f", group.samples_per_s),
         absl::StrFormat("%.1f %%", group.wait_share * 100)});
    bytes.rows.push_back({group.setting, FormatBytes(group.push_raw),
                          FormatBytes(group.push_wire),
                          Times(Ratio(group.push_raw, group.push_wire)),
                          FormatBytes(group.pull_raw),
                          FormatBytes(group.pull_wire),
                          Times(Ratio(group.pull_raw, group.pull_wire)),
                          Times(Ratio(group.push_raw + group.pull_raw,
                                      group.push_wire + group.pull_wire))});
  }
  return {training, bytes};
}

}  // namespace telegrad
