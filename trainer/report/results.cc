#include "trainer/report/results.h"

#include "absl/strings/str_cat.h"
#include "base/atomic_file.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad {

absl::Status WriteResults(const std::string& directory,
                          const std::vector<RunSummary>& runs,
                          absl::string_view command_line,
                          const ReportExtras& extras) {
  std::string metrics;
  std::string summary;
  for (const RunSummary& run : runs) {
    for (const MetricPoint& point : run.points) {
      absl::StrAppend(&metrics, ToJson(point, run.setting, run.seed), "\n");
    }
    absl::StrAppend(&summary, summary.empty() ? "[\n" : ",\n", ToJson(run));
  }
  absl::StrAppend(&summary, summary.empty() ? "[]\n" : "\n]\n");
  // A full disk, or a folder that went: no bug of ours.
  const auto write = [&](absl::string_view name, absl::string_view content) {
    return WithExitCode(
        ExitCode::kUsage,
        WriteFileAtomically(absl::StrCat(directory, name), content));
  };
  RETURN_IF_ERROR(write("/metrics.jsonl", metrics));
  RETURN_IF_ERROR(write("/summary.json", summary));
  return write("/report.html", ReportHtml(runs, command_line, extras));
}

}  // namespace telegrad
