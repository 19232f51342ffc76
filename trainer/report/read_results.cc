#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/input_file.h"
#include "base/status_macros.h"
#include "trainer/report/results.h"

namespace telegrad {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 30;
constexpr int kMostMembers = 1 << 16;
constexpr int64_t kMostElements = int64_t{1} << 40;

absl::Status Wrong(const std::string& path, const auto&... what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what...));
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMostFileBytes);
  return text.ok() ? text : Wrong(path, text.status().message());
}

// What tables, simulator and terminal take for granted.
absl::Status CheckRun(const RunSummary& run) {
  const auto is_harmless = [](const std::string& text) {
    return absl::c_none_of(
        text, [](unsigned char c) { return absl::ascii_iscntrl(c); });
  };
  const auto has_size = [](const TensorBytes& tensor) {
    return tensor.elements >= 0 && tensor.elements <= kMostElements;
  };
  const char* const field =
      run.setting.empty() || !is_harmless(run.setting) ? "setting"
      : !is_harmless(run.network)                      ? "network"
      : !is_harmless(run.data)                         ? "data"
      : !is_harmless(run.link)                         ? "link"
      : run.workers < 1 || run.workers > kMostMembers  ? "workers"
      : run.servers < 0 || run.servers > kMostMembers  ? "servers"
      : run.steps < 0                                  ? "steps"
      : !absl::c_all_of(run.tensors, has_size)         ? "tensors"
                                                       : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("field '", field, "' has a value that cannot be"));
}

absl::Status ReadPoints(const std::string& path,
                        std::vector<RunSummary>& runs) {
  std::map<RunName, RunSummary*> by_name;
  for (RunSummary& run : runs) by_name[{run.setting, run.seed}] = &run;
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  // What stands behind the last line's end was cut, or is nothing.
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    const auto name = RunNameFromJson(lines[i]);
    const auto point = MetricPointFromJson(lines[i]);
    const absl::Status& status = name.ok() ? point.status() : name.status();
    if (!status.ok())
      return Wrong(path, "line ", i + 1, ": ", status.message());
    if (const auto run = by_name.find(*name); run != by_name.end()) {
      run->second->points.push_back(*point);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<RunSummary>> ReadResults(
    const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/summary.json");
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (error) return Wrong(path, error.message());
    return std::vector<RunSummary>();
  }
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  absl::StatusOr<std::vector<RunSummary>> runs = RunSummariesFromJson(text);
  if (!runs.ok()) return Wrong(path, runs.status().message());
  std::map<RunName, size_t> places;
  for (const RunSummary& run : *runs) {
    const size_t place = places.size() + 1;
    if (const absl::Status status = CheckRun(run); !status.ok()) {
      return Wrong(path, "run ", place, ": ", status.message());
    }
    if (!places.emplace(RunName{run.setting, run.seed}, place).second) {
      return Wrong(path, "run ", place, ": ", run.setting, ", seed ", run.seed,
                   " comes twice");
    }
  }
  RETURN_IF_ERROR(ReadPoints(absl::StrCat(directory, "/metrics.jsonl"), *runs));
  return runs;
}

}  // namespace telegrad
