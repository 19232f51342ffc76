#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/kvstore.h"
#include "kvstore/tuning/run_calibration.h"
#include "topology/plan.h"

// `--gc-type auto`: the planner with figures of this run, checked against the
// steps that follow.
namespace telegrad {

// The codecs that `auto` may use, "fp16,2bit", the preferred one first: `gc`
// gets its type and alternatives. InvalidArgument or NotFound names `flag`, for
// `none` (which is always possible), one that comes twice, and too many.
absl::Status ParseAllowedCodecs(absl::string_view flag, absl::string_view list,
                                CompressionConfig& gc);

// The codecs that `auto` of `compression` predicts, each once.
std::vector<std::string> CodecsToMeasure(const CodecControl& codecs,
                                         const CompressionConfig& compression);

// Seconds of one step on this worker.
struct StepTimes {
  double step = 0;
  double exchange = 0;  // from the first push to the last answer
  double wait = 0;      // seconds in which nothing else was done
};

// The median of each time; 0 without samples.
StepTimes MedianTimes(std::span<const StepTimes> samples);

struct AutoOptions {
  // Codecs and cores are measured with these; `speeds.compression.type`, then
  // its alternatives, are the codecs that may be used.
  RunCalibrationOptions speeds = {};
  int threads = 1;    // this worker's threads for codecs
  int processes = 1;  // members of the job that share this machine's cores
  size_t chunk_elems = size_t{512} * 1024;
};

// What it keeps, for another run.
struct AutoChoice {
  std::string codec = "none";
  std::vector<std::string> tensors = {};  // tensors that have it
};
// As JSON, and back; InvalidArgument where it is none. "" stands for nullopt.
std::string ToJson(const std::optional<AutoChoice>& choice);
absl::StatusOr<std::optional<AutoChoice>> AutoChoiceFromJson(
    absl::string_view text);

// In order of use: the store is initialised with
// CompressionConfig::starts_dense, then Start, then AfterStep after every step,
// by all workers alike; all decide the same. Some dense steps are measured.
// With their times the planner predicts a step with each codec; those that may
// be faster are tried for some steps each, and the fastest is kept. Later, when
// exchanges take another time for two looks, all is measured anew. Errors are
// the store's, MakePlan's and CalibrateRun's. One thread.
class AutoCompression {
 public:
  using Decisions = std::vector<Decision>;

  AutoCompression(KVStore& store, AutoOptions options)
      : store_(store), options_(std::move(options)) {}

  // Measures the codecs (a fraction of a second each) that the cache lacks.
  // Tensors that a rule names are compressed at once, all others not.
  absl::StatusOr<Decisions> Start();
  // Instead of Start: goes on with what another run has kept. InvalidArgument
  // for a codec that is not allowed and a tensor that is not there.
  absl::Status Resume(const AutoChoice& choice);
  // None while steps are measured or a codec is tried.
  std::optional<AutoChoice> choice() const;
  // What was decided after this step, if anything.
  absl::StatusOr<Decisions> AfterStep(const StepTimes& times);
  // Whether AfterStep must come when no operation runs: it may change codecs,
  // or the step's time decides which is kept.
  bool DecidesAfterStep() const {
    return state_ == State::kDense || state_ == State::kTry ||
           samples_.size() + 1 >= num_wanted_;
  }

  int64_t step() const { return step_; }
  // For CodecControl::SetCodec; kDenseCodec: none.
  int codec() const { return ways_.empty() ? kDenseCodec : ways_[way_].codec; }
  // What CalibrateRun could not measure.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  enum class State : uint8_t { kDense, kTry, kWatch, kConfirm };
  // One way to exchange.
  struct Way {
    std::string name = "none";
    int codec = kDenseCodec;
    std::vector<bool> is_compressed = {};  // by tensor
    double predicted_s = 0;                // a step
    double own_s = 0;       // a step by a link that costs nothing
    double measured_s = 0;  // 0: not tried
  };

  absl::Status Measure(const RunCalibrationOptions& how);
  PlanRequest RequestFor(const std::string& codec) const;
  // A TCP link of this rate, whose messages cost this share of what is assumed.
  LinkFigures LinkOf(double bytes_per_s, double cost_share = 1) const;
  // What a step exposes by this link.
  absl::StatusOr<Plan> PlanWith(const PlanRequest& request,
                                const LinkFigures& link) const;
  absl::StatusOr<LinkFigures> FitLink() const;
  absl::StatusOr<Way> WayOf(int codec) const;
  absl::Status Switch(size_t way);
  void Enter(State state, int settle_steps);
  absl::StatusOr<Decisions> Predict(const StepTimes& now);
  absl::StatusOr<Decisions> TryNext();
  absl::StatusOr<Decisions> Review(const StepTimes& now);
  std::string Told() const;  // all ways' times
  size_t Best() const;

  KVStore& store_;
  const AutoOptions options_;
  Calibration calibration_ = {};
  std::vector<std::string> notes_ = {};
  GradientProfile profile_ = {};
  std::vector<std::string> given_ = {};  // by tensor; "": open
  State state_ = State::kDense;
  int settle_ = 0;  // steps to leave out
  size_t num_wanted_ = 0;
  std::vector<StepTimes> samples_ = {};
  StepTimes dense_ = {};
  double wait_spread_ = 0;      // relative, of the dense steps
  LinkFigures link_ = {};       // the link that explains the dense steps
  std::vector<Way> ways_ = {};  // the first is dense
  size_t way_ = 0;              // in use
  std::optional<StepTimes> reference_ = {};  // times of the way in use
  int64_t step_ = 0;
};

}  // namespace telegrad
