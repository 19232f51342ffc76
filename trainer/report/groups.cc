#include "trainer/report/groups.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace telegrad {
namespace {

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
  group.to_device += static_cast<double>(run.to_device_bytes) / steps;
  group.from_device += static_cast<double>(run.from_device_bytes) / steps;
  group.step_s += run.step_seconds_p50 > 0 ? run.step_seconds_p50 : mean_step;
  group.samples_per_s += run.samples_per_s;
  const double worker_seconds = run.seconds * run.workers;
  if (worker_seconds > 0) group.wait_share += run.comm_wait_s / worker_seconds;
  group.byte_limit_s += run.byte_limit_s;
  group.step_min_s += run.step_seconds_min;
  group.worker_peak_bytes =
      std::max(group.worker_peak_bytes, run.worker_peak_bytes);
  group.server_peak_bytes =
      std::max(group.server_peak_bytes, run.server_peak_bytes);
  group.model_bytes = run.model_bytes;
  group.jobs = std::max(group.jobs, run.jobs);
  group.has_accuracy = run.data != "synthetic";
}

// The sample standard deviation; 0 for one value.
double Spread(const std::vector<double>& values, double mean) {
  if (values.size() < 2) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// The two-sided 95 % quantile of Student's t with that many degrees of freedom,
// at least one; above 10 within 1 %.
double StudentT(size_t degrees) {
  constexpr std::array kQuantiles = {12.706, 4.303, 3.182, 2.776, 2.571,
                                     2.447,  2.365, 2.306, 2.262, 2.228};
  if (degrees <= kQuantiles.size()) return kQuantiles[degrees - 1];
  return 1.960 + 2.6 / static_cast<double>(degrees);
}

void Average(SettingGroup& group) {
  const double count = static_cast<double>(group.runs.size());
  for (double* value :
       {&group.accuracy, &group.loss, &group.push_raw, &group.push_wire,
        &group.pull_raw, &group.pull_wire, &group.to_device, &group.from_device,
        &group.step_s, &group.samples_per_s, &group.wait_share,
        &group.byte_limit_s, &group.step_min_s}) {
    *value /= count;
  }
  std::vector<double> accuracies;
  for (const RunSummary* run : group.runs) accuracies.push_back(run->accuracy);
  group.accuracy_spread = Spread(accuracies, group.accuracy);
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

const SettingGroup* FindNone(const std::vector<SettingGroup>& groups) {
  for (const SettingGroup& group : groups) {
    if (group.setting == "none") return &group;
  }
  const SettingGroup* only = nullptr;
  for (const SettingGroup& group : groups) {
    if (group.runs.front()->codec != "none") continue;
    if (only != nullptr) return nullptr;
    only = &group;
  }
  return only;
}

PairedDifference AccuracyDifference(const SettingGroup& group,
                                    const SettingGroup& reference) {
  std::vector<double> differences;
  for (const RunSummary* run : group.runs) {
    const auto of_seed =
        std::ranges::find(reference.runs, run->seed,
                          [](const RunSummary* other) { return other->seed; });
    if (of_seed == reference.runs.end()) continue;
    differences.push_back(run->accuracy - (*of_seed)->accuracy);
  }
  PairedDifference difference = {.num_pairs = differences.size()};
  if (differences.empty()) return difference;
  const double count = static_cast<double>(differences.size());
  difference.mean = std::reduce(differences.begin(), differences.end()) / count;
  if (differences.size() < 2) return difference;
  difference.half_width = StudentT(differences.size() - 1) *
                          Spread(differences, difference.mean) /
                          std::sqrt(count);
  return difference;
}

const char* OneSeedNote(const PairedDifference& difference) {
  constexpr double kSeedsDiffer = 0.02;  // as short trainings do
  if (difference.num_pairs != 1) return "";
  return std::abs(difference.mean) < kSeedsDiffer
             ? " (one seed: not distinguishable)"
             : " (one seed)";
}

bool HaveAccuracy(const std::vector<SettingGroup>& groups) {
  return std::any_of(
      groups.begin(), groups.end(),
      [](const SettingGroup& group) { return group.has_accuracy; });
}

std::string DescribeRuns(const std::vector<SettingGroup>& groups) {
  if (groups.empty()) return "no runs";
  const SettingGroup& group = groups.front();
  const RunSummary& run = *group.runs.front();
  const auto plural = [](size_t count, absl::string_view what) {
    return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
  };
  std::string text =
      absl::StrCat(run.network, " on ", run.data, ", ",
                   plural(static_cast<size_t>(run.workers), "worker"), ", ",
                   plural(static_cast<size_t>(run.servers), "server"), ", ",
                   plural(static_cast<size_t>(run.steps), "step"));
  if (!run.link.empty() && run.link != "none") {
    absl::StrAppend(&text, ", link ", run.link);
  }
  if (group.runs.size() > 1) {
    absl::StrAppend(&text, ", means of ", plural(group.runs.size(), "seed"));
  } else if (groups.size() > 1 && group.has_accuracy) {
    absl::StrAppend(&text, ", one seed");
  }
  return text;
}

}  // namespace telegrad
