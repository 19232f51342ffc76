#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/flags/options.h"
#include "trainer/report/observer.h"
#include "trainer/report/results.h"

namespace telegrad {

// One run of a comparison: a setting with a seed.
struct ComparedRun {
  const Setting* setting;
  int setting_index;
  uint64_t seed;
  std::string label;  // "2bit, seed 0"
};
std::vector<ComparedRun> RunsOf(const TrainOptions& options);

// Shows progress on stdout and keeps the summary.
class ConsoleObserver : public TrainObserver {
 public:
  // A launcher's ranks never draw: Open MPI gives each a terminal of its own.
  enum class Style { kBarOnTerminal, kLines, kJson };
  ConsoleObserver(Output& display, const Progress::Part& part, Style style);
  ~ConsoleObserver() override;
  void OnProgress(const Progress::State& state) override;
  void OnLine(const std::string& text) override;
  void OnSummary(const RunSummary& summary) override;
  bool has_summary() const { return has_summary_; }
  RunSummary& summary() { return summary_; }

 private:
  std::unique_ptr<Progress> progress_;
  bool has_summary_ = false;
  RunSummary summary_;
};

// How the same command goes on after it ended with that code, as "; ...":
// --continue where runs were finished, --resume where a checkpoint is there.
std::string AdviceOn(ExitCode code, const TrainOptions& options,
                     size_t num_finished = 0, size_t num_runs = 0);

// Options of a member's store or server, without address and rank.
absl::StatusOr<DistOptions> MakeDistOptions(const TrainOptions& options,
                                            const std::string& job_id);

// Where the members of a run write their flight records: a folder of its own
// where there are several runs.
std::shared_ptr<FlightLog> FlightLogOf(const TrainOptions& options,
                                       const Setting& setting, uint64_t seed);

// Writes the files, prints the closing table behind what `display` has, and
// says where they are. The error is that of writing.
absl::Status PrintResults(const TrainOptions& options, Output& display,
                          const std::vector<RunSummary>& results);

// The three ways to be started; each returns the process's exit code.
int RunEmbedded(const TrainOptions& options, char** argv);  // embedded.cc
int RunChild(const TrainOptions& options);                  // child.cc
int RunPlaced(TrainOptions options, const struct Placement& placement);

}  // namespace telegrad
