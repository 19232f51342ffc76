#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/auto_compression.h"
#include "kvstore/kvstore.h"
#include "kvstore/run_calibration.h"
#include "topology/calibration.h"
#include "topology/plan.h"

namespace telegrad {

struct LivePlanOptions {
  GradientProfile profile = {};  // the store's tensors
  // What is measured again when the link or the load changed, as before the
  // start; the cache is not asked.
  RunCalibrationOptions speeds = {};
  bool is_auto = false;  // the codec is AutoCompression's
  size_t chunk_elems = size_t{512} * 1024;
  int threads = 1;   // of this worker, for codecs; the least of all counts
  int machines = 1;  // with workers
  // Whose assumed costs of messages and bytes count.
  NetworkKind network = NetworkKind::kTcp;
  Duration link_time = std::chrono::milliseconds(150);  // of a measurement
};

// The plan of what the store itself does, workers and servers as they are: per
// tensor codec, chunk and priority, and how long an exchange takes. It is
// revised while the job runs, from step times of all workers, which all look at
// in the same step: once when they are known, and again when exchanges, or
// waiting that is a tenth of a step, have taken 1.5 times as long, or as short,
// for two looks; then link and cores are measured anew, for 1 % of the time at
// most. What is revised is told, not
// done: a codec changes by AutoCompression alone. In order of use: Start, then
// AfterStep after every step, by all workers alike; all get the same lines. One
// thread. Errors are the store's, MakePlan's and CalibrateRun's.
class LivePlan {
 public:
  using Lines = std::vector<std::string>;

  LivePlan(KVStore& store, LivePlanOptions options);

  // `speeds` as CalibrateRun agreed on them, `link` as MeasureLink did.
  absl::StatusOr<Lines> Start(const Calibration& speeds,
                              const LinkFigures& link);
  absl::StatusOr<Lines> AfterStep(const StepTimes& times);
  // Instead, with is_auto: whatever was decided (AutoCompression).
  absl::StatusOr<Lines> AfterDecision(const AutoMeasurement& measured);

  const Plan& plan() const { return plan_; }
  // For PushPull, by key.
  std::vector<int> priorities() const;

 private:
  enum class State { kFirst, kWatch, kConfirm };
  PlanRequest RequestFor(bool is_first) const;
  absl::Status AgreeOnThreads();
  void SetCalibration(const Calibration& speeds, const LinkFigures& link);
  Lines StartLines() const;
  std::string ChunkLine() const;
  void Enter(State state);
  absl::StatusOr<StepTimes> GatherMedians();
  bool HasChanged(const StepTimes& now) const;
  absl::StatusOr<Lines> MeasureAnew(const StepTimes& now);
  // After a measurement since `start`: no other before it was 1 % of the time.
  // The longest that one took, in seconds.
  absl::StatusOr<double> Pause(TimePoint start, double step_s);
  std::string Revise();        // what came of it
  std::string Prefix() const;  // of a line

  KVStore& store_;
  const LivePlanOptions options_;
  std::vector<std::string> codecs_ = {};  // of the tensors
  std::vector<std::string> given_ = {};   // the same for a plan that chooses
  std::vector<std::string> allowed_ = {};
  double threads_ = 1;       // the least of a worker
  Calibration speeds_ = {};  // as agreed
  LinkFigures link_ = {};    // as measured
  Calibration calibration_ = {};
  Plan plan_ = {};
  bool is_off_ = false;  // there is no plan
  double compute_s_ = 0;
  State state_ = State::kFirst;
  int64_t settle_ = 0;  // steps to leave out
  size_t num_wanted_ = 0;
  std::vector<StepTimes> samples_ = {};
  StepTimes reference_ = {};  // of the last look that counted
  int64_t step_ = 0;
  int64_t not_before_ = 0;  // the step at which it may be measured again
};

}  // namespace telegrad
