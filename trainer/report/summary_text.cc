#include "trainer/report/summary_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/results.h"

namespace telegrad {
namespace {

std::string Milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return absl::StrFormat("%.*f ms", ms < 10 ? 2 : ms < 100 ? 1 : 0, ms);
}

std::string BytesSentence(const SettingGroup& group) {
  if (!(group.push_wire > 0) || !(group.pull_wire > 0)) {
    return absl::StrCat(group.setting, " sent nothing");
  }
  return absl::StrFormat(
      "%s pushed %.1fx and pulled %.1fx fewer bytes than 32-bit floats take",
      group.setting, group.push_raw / group.push_wire,
      group.pull_raw / group.pull_wire);
}

std::string AccuracySentence(const SettingGroup& group,
                             const SettingGroup& none) {
  const double points = (group.accuracy - none.accuracy) * 100;
  if (std::abs(points) < 0.005) {
    return absl::StrFormat("its test accuracy was that of none, %.2f %%",
                           group.accuracy * 100);
  }
  const PairedDifference difference = AccuracyDifference(group, none);
  if (difference.num_pairs > 1 &&
      std::abs(difference.mean) <= difference.half_width) {
    return absl::StrFormat(
        "its test accuracy was %.2f %%, and none's %.2f %%: no difference that "
        "%d seeds can show",
        group.accuracy * 100, none.accuracy * 100, difference.num_pairs);
  }
  return absl::StrFormat(
      "its test accuracy was %.2f %%, %.2f points %s none's %.2f %%",
      group.accuracy * 100, std::abs(points), points < 0 ? "below" : "above",
      none.accuracy * 100);
}

std::string TimeSentence(const SettingGroup& group, const SettingGroup& none) {
  if (!(group.step_s > 0) || !(none.step_s > 0)) return "";
  if (group.jobs > 1 || none.jobs > 1) return "";
  const bool is_faster = group.step_s <= none.step_s;
  return absl::StrFormat(
      "a step took %s, %.2f times as %s as with none (%s)",
      Milliseconds(group.step_s),
      is_faster ? none.step_s / group.step_s : group.step_s / none.step_s,
      is_faster ? "fast" : "long", Milliseconds(none.step_s));
}

// So many that a sentence for each is too much to read.
constexpr size_t kMany = 6;
constexpr double kNear = 0.003;  // of none's accuracy

std::string EachText(const std::vector<SettingGroup>& groups,
                     const SettingGroup* none) {
  std::string text;
  for (const SettingGroup& group : groups) {
    if (&group == none) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", BytesSentence(group));
    if (none != nullptr) {
      if (group.has_accuracy && none->has_accuracy) {
        absl::StrAppend(&text, "; ", AccuracySentence(group, *none));
      }
      const std::string time = TimeSentence(group, *none);
      if (!time.empty()) absl::StrAppend(&text, "; ", time);
    } else if (group.has_accuracy) {
      absl::StrAppendFormat(&text, "; its test accuracy was %.2f %%",
                            group.accuracy * 100);
    }
    text += ".";
  }
  return text;
}

std::string FewestBytes(const std::vector<const SettingGroup*>& groups) {
  const auto wire = [](const SettingGroup* group) {
    return group->push_wire + group->pull_wire;
  };
  const SettingGroup& fewest =
      **std::ranges::min_element(groups, std::ranges::less(), wire);
  if (!(wire(&fewest) > 0)) return fewest.setting + " sent nothing";
  return absl::StrFormat(
      "%s sent the fewest bytes, %.1fx fewer both ways than 32-bit floats take",
      fewest.setting, (fewest.push_raw + fewest.pull_raw) / wire(&fewest));
}

// What the rows of a long table say together.
std::string ManyText(const std::vector<SettingGroup>& groups,
                     const SettingGroup& none) {
  std::vector<const SettingGroup*> near;
  std::string far;
  for (const SettingGroup& group : groups) {
    const double lost = none.accuracy - group.accuracy;
    if (&group == &none) continue;
    if (lost < kNear + 5e-5) {
      near.push_back(&group);
    } else {
      absl::StrAppendFormat(&far, "%s%s (%.2f)", far.empty() ? "" : ", ",
                            group.setting, 100 * lost);
    }
  }
  std::string text = absl::StrFormat(
      "%d of %d settings came within %.1f points of none's test accuracy, "
      "%.2f %%, or above it",
      near.size(), groups.size() - 1, 100 * kNear, 100 * none.accuracy);
  if (!near.empty()) absl::StrAppend(&text, "; of these ", FewestBytes(near));
  if (!far.empty()) absl::StrAppend(&text, ". Points below none: ", far);
  return text + ".";
}

}  // namespace

std::string SummarySentences(const std::vector<RunSummary>& runs) {
  return SummaryText(GroupBySetting(runs));
}

std::string SummaryText(const std::vector<SettingGroup>& groups) {
  const SettingGroup* none = FindNone(groups);
  const bool tells_many =
      groups.size() > kMany && none != nullptr && none->has_accuracy;
  std::string text =
      tells_many ? ManyText(groups, *none) : EachText(groups, none);
  if (text.empty() && none != nullptr) {
    text = absl::StrFormat("%s took %s per step.", none->setting,
                           Milliseconds(none->step_s));
    if (none->has_accuracy) {
      absl::StrAppendFormat(&text, " Its test accuracy was %.2f %%.",
                            none->accuracy * 100);
    }
  }
  int jobs = 1;
  for (const SettingGroup& group : groups) jobs = std::max(jobs, group.jobs);
  if (jobs > 1) {
    absl::StrAppend(&text, " Up to ", jobs,
                    " runs shared this machine: do not compare their times.");
  }
  return text;
}

}  // namespace telegrad
