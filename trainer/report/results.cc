#include "trainer/results.h"

#include "absl/strings/str_cat.h"
#include "base/atomic_file.h"
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
  RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(directory, "/metrics.jsonl"), metrics));
  RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(directory, "/summary.json"), summary));
  return WriteFileAtomically(absl::StrCat(directory, "/report.html"),
                             ReportHtml(runs, command_line, extras));
}

}  // namespace telegrad
