#include "trainer/report/summary_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/report/results.h"

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
  const double push = group.push_raw / group.push_wire;
  const double pull = group.pull_raw / group.pull_wire;
  if (push < 1.05 && pull < 1.05) {  // auto that has not chosen, too
    return absl::StrCat(group.setting, " sent as much as 32-bit floats take");
  }
  const RunSummary& run = *group.runs.front();
  const std::string share =
      CoverageText(run).empty()
          ? ""
          : absl::StrFormat(" (%.0f %% of them went compressed)",
                            100 * run.compressed_share);
  return absl::StrFormat(
      "%s pushed %.1fx and pulled %.1fx fewer bytes than 32-bit floats take%s",
      group.setting, push, pull, share);
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
      "its test accuracy was %.2f %%, %.2f points %s none's %.2f %%%s",
      group.accuracy * 100, std::abs(points), points < 0 ? "below" : "above",
      none.accuracy * 100, OneSeedNote(difference));
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

// none itself, and another optimizer or rate without a codec.
bool SavesNothing(const SettingGroup& group, const SettingGroup& none) {
  const double bytes = group.push_wire + group.pull_wire;
  return &group == &none || (group.runs.front()->codec == "none" &&
                             bytes > 0.99 * (none.push_wire + none.pull_wire));
}

// So many that a sentence for each is too much to read.
constexpr size_t kMany = 6;
constexpr double kNear = 0.003;  // a distance from none's accuracy
constexpr double kClear = 1.05;  // times as fast; less is noise

// `told`: the one of which a verdict has told accuracy and time; null: none.
std::string EachText(const std::vector<SettingGroup>& groups,
                     const SettingGroup* none, const SettingGroup* told) {
  std::string text;
  for (const SettingGroup& group : groups) {
    if (&group == none) continue;
    const bool as_none = none != nullptr && SavesNothing(group, *none);
    absl::StrAppend(&text, text.empty() ? "" : " ",
                    as_none ? group.setting + " sent as much as none"
                            : BytesSentence(group));
    if (none != nullptr && &group != told) {
      if (group.has_accuracy && none->has_accuracy) {
        absl::StrAppend(&text, "; ", AccuracySentence(group, *none));
      }
      const std::string time = TimeSentence(group, *none);
      if (!time.empty()) absl::StrAppend(&text, "; ", time);
    } else if (none == nullptr && group.has_accuracy) {
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
      absl::StrAppendFormat(&far, "%s%s (%+.2f)", far.empty() ? "" : ", ",
                            group.setting, -100 * lost);
    }
  }
  std::string text = absl::StrFormat(
      "%d of %d settings came within %.1f points of none's test accuracy, "
      "%.2f %%, or above it",
      near.size(), groups.size() - 1, 100 * kNear, 100 * none.accuracy);
  if (!near.empty()) absl::StrAppend(&text, "; of these ", FewestBytes(near));
  if (!far.empty()) absl::StrAppend(&text, ". Points to none: ", far);
  return text + ".";
}

double BytesRatio(const SettingGroup& group) {
  return (group.push_raw + group.pull_raw) /
         (group.push_wire + group.pull_wire);
}

// "-0.10 points of accuracy (one seed: not distinguishable)"
std::string DifferenceText(const SettingGroup& group,
                           const SettingGroup& none) {
  const PairedDifference difference = AccuracyDifference(group, none);
  std::string text =
      absl::StrFormat("%+.2f", 100 * (group.accuracy - none.accuracy));
  if (difference.num_pairs > 1) {
    absl::StrAppendFormat(&text, " ±%.2f", 100 * difference.half_width);
  }
  return absl::StrCat(text, " points of accuracy", OneSeedNote(difference));
}

bool SharesMachine(const std::vector<SettingGroup>& groups) {
  return std::ranges::any_of(
      groups, [](const SettingGroup& group) { return group.jobs > 1; });
}

// The best of those that lose little accuracy: in time, or in bytes where times
// do not compare; null: there is none.
const SettingGroup* BestOf(const std::vector<SettingGroup>& groups,
                           const SettingGroup& none, bool by_bytes) {
  const SettingGroup* best = nullptr;
  for (const SettingGroup& group : groups) {
    const bool loses = group.has_accuracy && none.has_accuracy &&
                       !(none.accuracy - group.accuracy < kNear + 5e-5);
    if (SavesNothing(group, none) || loses) continue;
    const bool is_better =
        best == nullptr || (by_bytes ? BytesRatio(group) > BytesRatio(*best)
                                     : group.step_s < best->step_s);
    if (is_better) best = &group;
  }
  return best;
}

std::string NoneIsNear(const std::vector<SettingGroup>& groups,
                       const SettingGroup& none) {
  const SettingGroup* closest = nullptr;
  for (const SettingGroup& group : groups) {
    if (SavesNothing(group, none)) continue;
    if (closest == nullptr || group.accuracy > closest->accuracy) {
      closest = &group;
    }
  }
  if (closest == nullptr) {
    return "No verdict: none of these settings sends fewer bytes than none.";
  }
  return absl::StrFormat(
      "Compression does not pay here: every setting is more than %.1f points "
      "below none. Closest is %s, %s.",
      100 * kNear, closest->setting, DifferenceText(*closest, none));
}

}  // namespace

std::string CoverageText(const RunSummary& run) {
  if (run.codec == "none" || run.num_tensors == 0 ||
      run.compressed_share > 0.995) {
    return "";
  }
  std::string text = absl::StrFormat(
      "%d of %d tensors went compressed, %.1f %% of the gradient's bytes: no "
      "codec can push more than %.1fx fewer",
      run.num_compressed, run.num_tensors, 100 * run.compressed_share,
      1 / (1 - run.compressed_share));
  if (run.num_small > 0) {
    absl::StrAppend(&text, "; ", run.num_small,
                    " are small: --gc-min-bytes 0 compresses them, too");
  }
  return text;
}

std::string VerdictText(const std::vector<SettingGroup>& groups) {
  if (groups.size() < 2) return "";
  const SettingGroup* const none = FindNone(groups);
  if (none == nullptr) {
    return "No verdict: none of these settings sends 32-bit floats alone; "
           "--compare none,... has one to compare with.";
  }
  const bool shares = SharesMachine(groups);
  const SettingGroup* const best = BestOf(groups, *none, shares);
  if (best == nullptr) return NoneIsNear(groups, *none);
  const std::string gain =
      absl::StrFormat("%.1fx fewer bytes both ways", BytesRatio(*best)) +
      (best->has_accuracy ? ", " + DifferenceText(*best, *none) : "");
  if (shares || !(best->step_s > 0)) {
    return absl::StrCat(
        "By bytes use ", best->setting, ": ", gain,
        ". Runs shared this machine, so that times say nothing.");
  }
  const double speedup = none->step_s / best->step_s;
  const std::string steps =
      absl::StrFormat("a step takes %s, with none %s",
                      Milliseconds(best->step_s), Milliseconds(none->step_s));
  if (speedup >= kClear) {
    return absl::StrFormat(
        "Compression pays here: use %s, with which %s: %.2f times as fast; %s.",
        best->setting, steps, speedup, gain);
  }
  return absl::StrFormat(
      "Compression %s here: with %s, the fastest that loses little, %s; %s. "
      "With none workers wait for %.0f %% of the time, which is all that fewer "
      "bytes can save; a slower network is emulated by --link.",
      speedup > 1 / kClear ? "makes no difference to the time" : "does not pay",
      best->setting, steps, gain, 100 * none->wait_share);
}

std::string SummarySentences(const std::vector<RunSummary>& runs) {
  return SummaryText(GroupBySetting(runs));
}

std::string SummaryText(const std::vector<SettingGroup>& groups) {
  const SettingGroup* none = FindNone(groups);
  const bool tells_many =
      groups.size() > kMany && none != nullptr && none->has_accuracy;
  const SettingGroup* const told =
      none == nullptr ? nullptr : BestOf(groups, *none, SharesMachine(groups));
  std::string text =
      tells_many ? ManyText(groups, *none) : EachText(groups, none, told);
  const std::string verdict = VerdictText(groups);
  if (!verdict.empty()) text = absl::StrCat(verdict, " ", text);
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
