#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/auto_decision.h"
#include "kvstore/calibrate.h"
#include "kvstore/calibration_cache.h"
#include "kvstore/kvstore.h"

// `--gc-type auto`: compress when it makes the step faster, and only then.
namespace telegrad {

// What a decision was made with, the same on all workers.
struct AutoMeasurement {
  Observation seen = {};  // of dense steps
  bool is_first = true;   // else all was measured anew
  std::string name = {};  // of the codec that was chosen, "none"
};

struct AutoOptions {
  // As the store's: `type`, then `alternatives`, are the codecs that may be
  // used, in the order of preference.
  CompressionConfig compression = {};
  // Of a worker, for codecs; 0: none but the transport's, which counts as one.
  int cores = 1;
  size_t chunk_elems = size_t{512} * 1024;
  CalibrationCache* cache = nullptr;  // of codecs' speeds; null: none
  MeasureCodecFn* measure_codec = MeasureCodec;
  // `reduce` and codecs' speeds of this worker that were measured just before
  // Start, which does not measure them again.
  Calibration known = {};
};

// Watches training through its step times. In order of use: the store is
// initialised with CompressionConfig::starts_dense, then Start, then AfterStep
// after every step, by all workers alike. Dense steps are measured first. A
// decision for a codec is checked against the steps that follow it: they must
// be faster than the dense ones, and the exchange as fast as predicted for any
// other codec, else that one is tried, at last none. Later, when exchanges take
// another time than then, all is measured anew. One thread.
class AutoCompression {
 public:
  using Lines = std::vector<std::string>;

  AutoCompression(KVStore& store, const AutoOptions& options)
      : store_(store), options_(options) {}

  // Measures the codecs (a fraction of a second each) that the cache lacks.
  // Tensors that a rule names are compressed at once.
  absl::StatusOr<Lines> Start();
  // What there is to say, if anything. Errors are the store's.
  absl::StatusOr<Lines> AfterStep(const StepTimes& times);

  // Once after each decision that was made from dense steps.
  std::optional<AutoMeasurement> TakeMeasurement() {
    return std::exchange(measurement_, std::nullopt);
  }

  // For KVStore::SetCodec; kDenseCodec: none.
  int codec() const { return codec_; }
  bool is_compressing() const { return codec_ != kDenseCodec; }

 private:
  enum class State { kMeasureDense, kCheck, kStable };
  absl::Status MeasureSpeeds(CalibrationCache* cache, const Calibration& known);
  absl::StatusOr<CodecFigures> SpeedsOf(const std::string& codec,
                                        const Calibration& known,
                                        const CalibrationOptions& options);
  // Of the samples, over all workers.
  absl::StatusOr<Observation> Gather();
  absl::Status Switch(int codec);
  void Enter(State state, int settle_steps);
  absl::StatusOr<Lines> Decide();
  absl::StatusOr<Lines> Check();
  absl::StatusOr<Lines> Review();
  std::string NameOf(int codec) const;
  std::string Prefix() const;  // of a line

  KVStore& store_;
  const AutoOptions options_;
  std::vector<CodecFigures> speeds_ = {};
  std::vector<CodecFigures> given_speeds_ = {};  // of rules
  double reduce_elems_per_s_ = 0;
  std::vector<int64_t> elems_ = {};
  std::vector<std::string> given_ = {};  // codecs, "" where one is chosen
  State state_ = State::kMeasureDense;
  int settle_ = 0;  // steps to leave out
  int num_wanted_ = 0;
  std::vector<StepTimes> samples_ = {};
  std::vector<CodecCandidate> candidates_ = {};  // of the last decision
  StepTimes dense_ = {};                         // that it was made with
  double reference_s_ = 0;  // exchange, when the last decision was made
  int codec_ = kDenseCodec;
  int previous_ = kDenseCodec;  // before all was measured anew
  int64_t step_ = 0;
  std::optional<AutoMeasurement> measurement_ = {};
};

}  // namespace telegrad
