#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/device.h"
#include "kvstore/kvstore.h"
#include "kvstore/metrics.h"
#include "kvstore/tuning/machine_detection.h"
#include "trainer/data/dataset.h"
#include "trainer/flags/options.h"
#include "trainer/report/observer.h"
#include "trainer/report/tensorboard.h"
#include "trainer/run/step_timeline.h"
#include "trainer/run/stragglers.h"
#include "trainer/run/worker_totals.h"

namespace telegrad {

// One setting with one seed, as a worker: joins, trains or benchmarks,
// evaluates, leaves. `observer` hears on rank 0 only. Errors carry exit codes;
// before returning one, the other members were told.
absl::Status RunAsWorker(const TrainOptions& options, const Setting& setting,
                         uint64_t seed, DistOptions dist,
                         MachineDetection& detection, TrainObserver& observer);

// A death of others that this worker has outlived.
struct Outlived {
  std::string what;          // "worker/2@host:77: connection closed"
  int64_t num_steps = 0;     // steps that were done by then
  TimePoint at;              // the end of the last one
  bool is_newcomer = false;  // it has done none, `at` is when it came in
};

// The parts of it that differ: a model on data, or ready-made gradients.
struct RunContext {
  const TrainOptions& options;
  const Setting& setting;
  uint64_t seed;
  KVStore& store;
  TrainObserver& observer;
  MachineDetection& detection;
  StepTimeline& timeline;
  StoreMetrics& metrics;
  std::optional<DatasetPair>& data;    // once it is there; outlives the job
  TensorBoard* tensorboard = nullptr;  // null: no event files, or not here
  // Before the workers first wait for each other.
  std::filesystem::file_time_type started =
      std::filesystem::file_time_type::clock::now();
  ReportedPlan plan = {};                     // once it is made
  std::vector<TensorSpec> tensors = {};       // with what it decides of them
  PackingMode packing = PackingMode::kPlain;  // once it is settled
  std::vector<Device> gpus = {};  // this worker's, once they are chosen
  // What was chosen since, and why, in order; for the summary, as the next one.
  std::vector<std::string> decisions = {};
  std::vector<std::string> warnings = {};
  std::optional<Outlived> outlived = {};  // until the next step has ended
  int64_t num_steps = 0;                  // steps that are done
  TimePoint stepped_at = Clock::now();

  // To everybody, and for the summary.
  void Warn(const std::string& text) {
    observer.OnNotice(text);
    warnings.push_back(text);
  }
  // As a warning, but for the summary once of a member and cause.
  void Warn(const Straggler& straggler, int64_t step);
  // `step` have ended now.
  void AfterStep(int64_t step);
};

// What a worker needs before it has met the others: the framework, and `data`
// where there are none.
absl::Status LoadForTraining(const TrainOptions& options, uint64_t seed,
                             std::optional<DatasetPair>& data);

absl::StatusOr<RunSummary> TrainNetwork(RunContext& context);
absl::StatusOr<RunSummary> BenchmarkProfile(RunContext& context);

// What both parts share -----------------------------------------------------

OptimizerConfig MakeOptimizer(const TrainOptions& options,
                              const Setting& setting, int num_workers);

// Gathers all workers' totals and fills the summary's fields from them; an
// error when the weights differ, naming the workers.
absl::Status FillSummary(RunContext& context, const WorkerTotals& mine,
                         RunSummary& summary);

// What this worker's files of --timeline begin with; empty where there are
// none.
std::string TraceBaseOf(const RunContext& context);

// The first of details that commas separate; some have commas in parentheses.
std::string FirstOf(const std::string& details);
// ", encryption on: 2 sealed" of them; empty: none are.
std::string SealedOf(const std::string& details);

}  // namespace telegrad
