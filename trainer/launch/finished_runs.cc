#include "trainer/launch/finished_runs.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "trainer/flags/identity.h"

namespace telegrad {
namespace {

bool IsOf(const RunSummary& run, const ComparedRun& wanted) {
  return run.setting == wanted.setting->name && run.seed == wanted.seed;
}

// NAME.PID.part: what WriteFileAtomically leaves of a process that is killed.
bool IsHalfWritten(const std::filesystem::path& path) {
  const std::string pid = path.stem().extension().string();
  return path.extension() == ".part" && pid.size() > 1 &&
         std::all_of(pid.begin() + 1, pid.end(), absl::ascii_isdigit);
}

void RemoveHalfWritten(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator it(folder, error);
  for (; !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    if (IsHalfWritten(*it)) std::filesystem::remove(*it, ignored);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HeldFolder>> HoldResultsFolder(
    const std::string& folder) {
  auto held = HeldFolder::Take("--out", folder);
  if (held.ok()) RemoveHalfWritten(folder);
  return held;
}

size_t FinishedRuns::PlaceOf(const RunSummary& run) const {
  const auto found = absl::c_find_if(
      wanted_, [&run](const ComparedRun& wanted) { return IsOf(run, wanted); });
  return static_cast<size_t>(found - wanted_.begin());
}

absl::Status FinishedRuns::CheckTaken(const RunSummary& run) const {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--continue: '", run.setting, ", seed ", run.seed, "' in ",
                     options_.out, "/summary.json ", why...));
  };
  if (run.identity.empty()) {
    return refuse(
        "does not say by which flags it was made (an older version, or under a "
        "launcher); another --out begins anew");
  }
  const std::string difference =
      DifferenceTo(run.identity, options_.laboratory.identity);
  if (!difference.empty()) {
    return refuse("was made otherwise: ", difference,
                  "; another --out begins anew");
  }
  if (run.jobs > 1 && !options_.laboratory.what_if.empty()) {
    return refuse(
        "was beside others (--jobs): its times are not good for --what-if");
  }
  return absl::OkStatus();
}

absl::Status FinishedRuns::Take() {
  absl::StatusOr<std::vector<RunSummary>> runs = ReadResults(options_.out);
  if (!runs.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--continue: ", runs.status().message(),
                     "; another --out begins anew"));
  }
  for (RunSummary& run : *runs) {
    RETURN_IF_ERROR(CheckTaken(run));
    Add(std::move(run));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FinishedRuns::MoveOthers() const {
  FinishedRuns there(options_);
  const absl::Status taken = there.Take();
  const auto is_wanted = [&](const RunSummary& run) { return IsWanted(run); };
  if (taken.ok() && absl::c_all_of(there.all(), is_wanted)) return "";
  std::error_code error;
  const auto out = std::filesystem::canonical(options_.out, error).string();
  std::string folder;
  for (int n = 1; !error; ++n) {
    folder = absl::StrCat(out, ".", n);
    if (std::filesystem::create_directory(folder, error)) break;
  }
  for (const char* file : {"summary.json", "metrics.jsonl", "report.html"}) {
    const std::string from = absl::StrCat(out, "/", file);
    if (error || !std::filesystem::exists(from)) continue;
    std::filesystem::rename(from, absl::StrCat(folder, "/", file), error);
  }
  if (!error) {
    return absl::StrCat("results of another command in ", options_.out,
                        " were moved to ", folder);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--out ", options_.out, " has results of another command, and ", folder,
      " cannot take them (", error.message(), "): give another --out"));
}

void FinishedRuns::Add(RunSummary run) {
  const auto place =
      std::upper_bound(runs_.begin(), runs_.end(), PlaceOf(run),
                       [this](size_t at, const RunSummary& other) {
                         return at < PlaceOf(other);
                       });
  runs_.insert(place, std::move(run));
}

absl::Status FinishedRuns::Write() const {
  return WriteResults(options_.out, runs_, options_.command_line,
                      {.target = options_.laboratory.target});
}

std::vector<ComparedRun> FinishedRuns::Missing() const {
  std::vector<ComparedRun> missing;
  absl::c_copy_if(
      wanted_, std::back_inserter(missing), [this](const ComparedRun& wanted) {
        return absl::c_none_of(
            runs_, [&](const RunSummary& run) { return IsOf(run, wanted); });
      });
  return missing;
}

}  // namespace telegrad
