#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/folder.h"
#include "trainer/flags/options.h"
#include "trainer/launch/cluster.h"
#include "trainer/report/results.h"

namespace telegrad {

// Keeps --out for this command, so that no two write there.
absl::StatusOr<std::unique_ptr<HeldFolder>> HoldResultsFolder(
    const std::string& folder);

// The results of a command's runs, as far as there are some, in the order of
// its settings and seeds; behind them others that --out had of the same flags.
class FinishedRuns {
 public:
  explicit FinishedRuns(const TrainOptions& options)
      : options_(options), wanted_(RunsOf(options)) {}

  // Takes the results in --out. InvalidArgument: a file there is none of
  // WriteResults', or a run was made with other flags, which are named with
  // both values.
  absl::Status Take();
  void Add(RunSummary run);
  // Before the first run: results in --out that this command does not make
  // again are moved to a new folder beside it, OUT.1, OUT.2, ...: a sentence
  // that says so; empty where there are none.
  absl::StatusOr<std::string> MoveOthers() const;
  // To --out, without what PrintResults alone finds out.
  absl::Status Write() const;

  const std::vector<ComparedRun>& wanted() const { return wanted_; }
  bool IsWanted(const RunSummary& run) const {
    return PlaceOf(run) < wanted_.size();
  }
  std::vector<ComparedRun> Missing() const;
  const std::vector<RunSummary>& all() const { return runs_; }

 private:
  size_t PlaceOf(const RunSummary& run) const;
  absl::Status CheckTaken(const RunSummary& run) const;

  const TrainOptions& options_;
  const std::vector<ComparedRun> wanted_;
  std::vector<RunSummary> runs_;
};

}  // namespace telegrad
