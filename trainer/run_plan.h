#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/live_plan.h"
#include "trainer/auto_run.h"
#include "trainer/worker_run.h"

namespace telegrad {

// Variables that choose the network and must be the same on all workers, for
// DistOptions::facts.
Facts NetworkVariables();

// Decides --gc-packing auto by what the link and the codec take, where that is
// open, and says so. All workers call it at the same time, after the store's
// Init. Errors as SettlePacking.
absl::Status PackRun(RunContext& context);

// A run's plan and its revisions; nothing for a single worker.
class RunPlan {
 public:
  // Measures, agrees with the other workers on the plan for `tensors`, shows it
  // and keeps it in the context. After the store's Init. Errors as AgreeOnPlan.
  absl::Status Start(RunContext& context, std::span<const TensorSpec> tensors);
  // After that of the automatic choice.
  absl::Status AfterStep(const StepTimes& times, AutoRun& automatic);

  // This worker's cores and codecs, as they were measured at the start.
  const Calibration& speeds() const { return speeds_; }
  // Of PushPull: first layers first.
  int PriorityOf(size_t key) const {
    return key < priorities_.size() ? priorities_[key] : -static_cast<int>(key);
  }

 private:
  absl::StatusOr<RunCalibration> Measure(std::span<const TensorSpec> tensors,
                                         CalibrationCache& cache);
  absl::Status StartLive(const RunCalibration& speeds, const LinkFigures& link,
                         const JobPlan& job);

  RunContext* context_ = nullptr;
  GradientProfile profile_ = {};
  RunCalibrationOptions options_ = {};
  Calibration speeds_ = {};
  std::vector<int> priorities_ = {};
  std::optional<LivePlan> live_ = {};
};

}  // namespace telegrad
