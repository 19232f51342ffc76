#include "kvstore/auto_compression.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kvstore/automatic/observation.h"
#include "kvstore/calibrate.h"
#include "kvstore/run_calibration.h"

namespace telegrad {
namespace {

// A switch takes effect two steps later, and the first steps warm up. Between
// two codecs is a dense step.
constexpr int kSettleSteps = 3;
constexpr int kMeasureSteps = 6;
constexpr int kReviewSteps = 64;
// Exchanges that take so much more or less time are another link or load.
constexpr double kChanged = 1.5;

}  // namespace

std::string AutoCompression::NameOf(int codec) const {
  return codec == kDenseCodec ? "none"
                              : speeds_[static_cast<size_t>(codec)].name;
}

std::string AutoCompression::Prefix() const {
  return absl::StrCat("auto, step ", step_, ": ");
}

absl::StatusOr<CodecFigures> AutoCompression::SpeedsOf(
    const std::string& codec, const Calibration& known,
    const CalibrationOptions& options) {
  if (const CodecFigures* figures = known.FindCodec(codec)) return *figures;
  return options_.measure_codec(codec, options_.compression, options);
}

absl::Status AutoCompression::MeasureSpeeds(CalibrationCache* cache,
                                            const Calibration& known) {
  CalibrationOptions options;
  options.num_elems = CalibrationElems(static_cast<size_t>(
      std::accumulate(elems_.begin(), elems_.end(), int64_t{0})));
  options.num_workers = store_.num_workers();
  options.cache = cache;
  speeds_.clear();
  given_speeds_.clear();
  for (const std::string& codec : options_.compression.types()) {
    ASSIGN_OR_RETURN(speeds_.emplace_back(), SpeedsOf(codec, known, options));
  }
  std::set<std::string> rules(given_.begin(), given_.end());
  rules.erase("");
  rules.erase("none");
  for (const std::string& codec : rules) {
    // One that cannot be measured has no speeds, as the others may know.
    given_speeds_.push_back(
        SpeedsOf(codec, known, options).value_or(CodecFigures{.name = codec}));
  }
  reduce_elems_per_s_ = known.reduce.value > 0 ? known.reduce.value
                                               : MeasureReduce(options).value;
  return absl::OkStatus();
}

absl::StatusOr<AutoCompression::Lines> AutoCompression::Start() {
  const std::vector<TensorReport> reports = store_.Report();
  given_ = CodecsOf(reports, /*is_choice=*/true);
  for (size_t key = 0; key < reports.size(); ++key) {
    elems_.push_back(static_cast<int64_t>(reports[key].num_elems));
    if (reports[key].has_rule) {
      RETURN_IF_ERROR(store_.SetCodec(static_cast<Key>(key), 0));
    }
  }
  RETURN_IF_ERROR(MeasureSpeeds(options_.cache, options_.known));
  Enter(State::kMeasureDense, kSettleSteps);
  const auto add_name = [](std::string* out, const CodecFigures& codec) {
    absl::StrAppend(out, codec.name);
  };
  return Lines{absl::StrCat(Prefix(), "dense for ",
                            kSettleSteps + kMeasureSteps,
                            " steps, then the fastest of none, ",
                            absl::StrJoin(speeds_, ", ", add_name))};
}

void AutoCompression::Enter(State state, int settle_steps) {
  state_ = state;
  settle_ = settle_steps;
  num_wanted_ = state == State::kStable ? kReviewSteps : kMeasureSteps;
  samples_.clear();
}

absl::Status AutoCompression::Switch(int codec) {
  codec_ = codec;
  for (size_t key = 0; key < elems_.size(); ++key) {
    if (!given_[key].empty()) continue;
    const bool is_compressed =
        codec != kDenseCodec &&
        candidates_[static_cast<size_t>(codec)].is_compressed[key];
    RETURN_IF_ERROR(store_.SetCodec(static_cast<Key>(key),
                                    is_compressed ? codec : kDenseCodec));
  }
  return absl::OkStatus();
}

absl::StatusOr<AutoCompression::Lines> AutoCompression::AfterStep(
    const StepTimes& times) {
  ++step_;
  if (settle_ > 0) {
    --settle_;
    return Lines();
  }
  samples_.push_back(times);
  if (static_cast<int>(samples_.size()) < num_wanted_) return Lines();
  switch (state_) {
    case State::kMeasureDense:
      return Decide();
    case State::kCheck:
      return Check();
    case State::kStable:
      break;
  }
  return Review();
}

absl::StatusOr<Observation> AutoCompression::Gather() {
  return GatherObservation(
      store_, Observe(samples_, speeds_, given_speeds_, reduce_elems_per_s_));
}

absl::StatusOr<AutoCompression::Lines> AutoCompression::Decide() {
  ASSIGN_OR_RETURN(const Observation seen, Gather());
  const ClusterCost cluster{
      .workers = store_.num_workers(),
      .servers = store_.num_servers(),
      .cores = static_cast<double>(std::max(1, options_.cores))};
  const bool is_first = candidates_.empty();
  ASSIGN_OR_RETURN(AutoDecision decision,
                   DecideCompression(elems_, given_, cluster,
                                     options_.chunk_elems, seen, previous_));
  candidates_ = std::move(decision.candidates);
  dense_ = seen.median;
  reference_s_ = dense_.exchange;
  RETURN_IF_ERROR(Switch(decision.codec));
  measurement_ = {
      .seen = seen, .is_first = is_first, .name = NameOf(decision.codec)};
  Enter(decision.any() ? State::kCheck : State::kStable, kSettleSteps);
  const std::string before =
      is_first ? ""
      : previous_ == codec_
          ? absl::StrCat("still ", NameOf(codec_), ": ")
          : absl::StrCat("revised from ", NameOf(previous_), ": ");
  return Lines{absl::StrCat(Prefix(), before, decision.reason)};
}

absl::StatusOr<AutoCompression::Lines> AutoCompression::Check() {
  ASSIGN_OR_RETURN(const Observation seen, Gather());
  CodecCandidate& tried = candidates_[static_cast<size_t>(codec_)];
  const std::string times = absl::StrFormat(
      "steps took %.3g ms dense, %.3g ms with %s (exchange %.3g ms, "
      "%.3g ms predicted)",
      1e3 * dense_.step, 1e3 * seen.median.step, tried.name,
      1e3 * seen.median.exchange, 1e3 * tried.exchange_s);
  tried.exchange_s = seen.median.exchange;
  tried.is_measured = true;
  tried.is_worth_it = seen.median.step < dense_.step;
  const int next = ChooseCodec(candidates_, dense_, codec_);
  if (next == codec_) {
    reference_s_ = tried.exchange_s;
    Enter(State::kStable, 0);
    return Lines{absl::StrCat(Prefix(), "compression stays: ", times)};
  }
  RETURN_IF_ERROR(Switch(next));
  if (next == kDenseCodec) {
    reference_s_ = dense_.exchange;
    Enter(State::kStable, kSettleSteps);
    return Lines{absl::StrCat(Prefix(), "compression off again: ", times)};
  }
  const CodecCandidate& other = candidates_[static_cast<size_t>(next)];
  reference_s_ = other.exchange_s;
  Enter(other.is_measured ? State::kStable : State::kCheck, kSettleSteps + 1);
  return Lines{absl::StrCat(
      Prefix(), "compression by ", other.name, " instead: ", times,
      absl::StrFormat("; %.3g ms %s with %s", 1e3 * other.exchange_s,
                      other.is_measured ? "measured" : "predicted",
                      other.name))};
}

absl::StatusOr<AutoCompression::Lines> AutoCompression::Review() {
  ASSIGN_OR_RETURN(const Observation seen, Gather());
  const double now = seen.median.exchange;
  if (now < kChanged * reference_s_ && now > reference_s_ / kChanged) {
    Enter(State::kStable, 0);
    return Lines();
  }
  // The cores' load may be what changed.
  RETURN_IF_ERROR(MeasureSpeeds(nullptr, {}));
  previous_ = codec_;
  RETURN_IF_ERROR(Switch(kDenseCodec));
  Enter(State::kMeasureDense, kSettleSteps);
  return Lines{absl::StrFormat(
      "%sexchanges take %.3g ms, %.3g ms before: measuring anew", Prefix(),
      1e3 * now, 1e3 * reference_s_)};
}

}  // namespace telegrad
