#include "kvstore/auto_compression.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "kvstore/calibrate.h"

namespace telegrad {
namespace {

// A switch takes effect two steps later, and the first steps warm up.
constexpr int kSettleSteps = 3;
constexpr int kMeasureSteps = 6;
constexpr int kReviewSteps = 64;
// A step that is so much slower than the dense ones takes a decision back.
constexpr double kWorse = 1.03;
// Exchanges that take so much more or less time are another link or load.
constexpr double kChanged = 1.5;
constexpr double kLeastGain = 0.01;   // of a step
constexpr double kCodecSpread = 0.1;  // between runs of one loop
constexpr double kSlowest = 1e5;      // bytes/s of a link
constexpr double kFastest = 1e12;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A link's rate for people.
std::string Rate(double bytes_per_s) {
  if (bytes_per_s >= kFastest) return "beyond 8000 Gb/s";
  return absl::StrFormat("%.3g Gb/s", 8e-9 * bytes_per_s);
}

// Servers of their own, or as if: the fit of the link makes up for it.
constexpr Aggregation kServers = Aggregation::kDedicatedServers;

// An exchange of all tensors, those of `compressed` by `codec`.
double ExchangeSeconds(std::span<const int64_t> elems,
                       const std::vector<bool>& compressed,
                       const ClusterCost& cluster, const CodecCost& codec,
                       size_t chunk_elems) {
  const Pipeline dense = MakePipeline(kServers, cluster, DenseCost(cluster));
  const Pipeline coded = MakePipeline(kServers, cluster, codec);
  std::vector<TensorCost> tensors;
  for (size_t i = 0; i < elems.size(); ++i) {
    tensors.push_back({.pipeline = compressed[i] ? &coded : &dense,
                       .elems = elems[i],
                       .chunk_elems = static_cast<int64_t>(chunk_elems)});
  }
  return FinishSeconds(tensors);
}

// The rate with which dense tensors take `seconds`; infinity where they take
// longer at any.
double FitLink(std::span<const int64_t> elems, ClusterCost cluster,
               size_t chunk_elems, double seconds) {
  const std::vector<bool> dense(elems.size(), false);
  const auto at = [&](double rate) {
    cluster.bytes_per_s = rate;
    return ExchangeSeconds(elems, dense, cluster, DenseCost(cluster),
                           chunk_elems);
  };
  if (at(kFastest) >= seconds) return std::numeric_limits<double>::infinity();
  double low = std::log(kSlowest);
  double high = std::log(kFastest);
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (at(std::exp(middle)) > seconds ? low : high) = middle;
  }
  return std::exp(high);
}

std::string Counts(const std::vector<bool>& chosen) {
  return absl::StrCat(std::count(chosen.begin(), chosen.end(), true), " of ",
                      chosen.size(), " tensors");
}

constexpr Figure CodecFigures::*kSpeeds[] = {
    &CodecFigures::encode, &CodecFigures::decode, &CodecFigures::decode_add,
    &CodecFigures::sum, &CodecFigures::reply_encode};

// An observation on its way to the other workers: what is largest on the
// slowest worker, then speeds, which are smallest there.
constexpr size_t kNumTimes = 5;
constexpr size_t kNumFigures = kNumTimes + std::size(kSpeeds) + 1;
using Figures = std::array<double, kNumFigures>;

Figures ToFigures(const Observation& seen) {
  Figures figures = {seen.median.step, seen.median.exchange, seen.median.wait,
                     seen.exchange_spread, seen.codec.call_s.value};
  size_t at = kNumTimes;
  for (const auto speed : kSpeeds) figures[at++] = (seen.codec.*speed).value;
  figures[at] = seen.reduce_elems_per_s;
  return figures;
}

// The rest of the codec's figures is in `seen`.
void FromFigures(const Figures& figures, Observation& seen) {
  seen.median = {figures[0], figures[1], figures[2]};
  seen.exchange_spread = figures[3];
  seen.codec.call_s.value = figures[4];
  size_t at = kNumTimes;
  for (const auto speed : kSpeeds) (seen.codec.*speed).value = figures[at++];
  seen.reduce_elems_per_s = figures[at];
}

absl::StatusOr<Figures> ParseFigures(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  Figures figures{};
  bool is_good = parts.size() == kNumFigures;
  for (size_t i = 0; is_good && i < kNumFigures; ++i) {
    is_good = absl::SimpleAtod(parts[i], &figures[i]) &&
              std::isfinite(figures[i]) && figures[i] >= 0;
  }
  if (is_good) return figures;
  return absl::InvalidArgumentError(
      absl::StrCat("measured times of a worker: '", text.substr(0, 100), "'"));
}

}  // namespace

absl::StatusOr<AutoDecision> DecideCompression(
    std::span<const int64_t> tensor_elems,
    const std::vector<bool>& may_compress, ClusterCost cluster,
    size_t chunk_elems, const Observation& seen) {
  cluster.reduce_elems_per_s = seen.reduce_elems_per_s;
  AutoDecision decision;
  const size_t n = tensor_elems.size();
  decision.is_compressed.assign(n, false);
  const double rate =
      FitLink(tensor_elems, cluster, chunk_elems, seen.median.exchange);
  decision.link_bytes_per_s = rate;
  cluster.bytes_per_s = std::min(rate, kFastest);
  ASSIGN_OR_RETURN(const CodecCost codec, CostOf(seen.codec, cluster, 0));
  ASSIGN_OR_RETURN(const CodecCost slow, CostOf(seen.codec, cluster, -1));
  int64_t largest = 1;
  for (size_t i = 0; i < n; ++i) {
    if (!may_compress[i]) continue;
    largest = std::max(largest, tensor_elems[i]);
    const std::array<int64_t, 1> one = {tensor_elems[i]};
    decision.is_compressed[i] =
        ExchangeSeconds(one, {true}, cluster, slow, chunk_elems) <
        ExchangeSeconds(one, {false}, cluster, slow, chunk_elems);
    decision.any |= decision.is_compressed[i];
  }
  decision.break_even_bytes_per_s =
      BreakEvenBytesPerS(kServers, kServers, cluster, codec, largest);
  decision.exchange_s = ExchangeSeconds(tensor_elems, decision.is_compressed,
                                        cluster, codec, chunk_elems);
  const double pessimistic = ExchangeSeconds(
      tensor_elems, decision.is_compressed, cluster, slow, chunk_elems);
  const double dense = seen.median.exchange;
  const double gain = std::min(seen.median.wait, dense - decision.exchange_s);
  const bool pays = decision.any &&
                    pessimistic < dense * (1 - seen.exchange_spread) &&
                    gain > kLeastGain * seen.median.step;
  const bool below = rate < decision.break_even_bytes_per_s;
  const std::string numbers = absl::StrFormat(
      "link %s %s break-even %s; exchange %.3g ms of a step of %.3g ms, %.3g "
      "ms predicted with %s",
      Rate(rate), below ? "<" : ">=", Rate(decision.break_even_bytes_per_s),
      1e3 * dense, 1e3 * seen.median.step, 1e3 * decision.exchange_s,
      seen.codec.name);
  if (pays) {
    decision.reason =
        absl::StrCat("compression on, ", seen.codec.name, " for ",
                     Counts(decision.is_compressed), ": ", numbers);
    return decision;
  }
  decision.is_compressed.assign(n, false);
  decision.any = false;
  decision.reason = absl::StrCat(
      "compression off: ", numbers,
      below ? "; that is less than the uncertainty, or hidden behind backward"
            : "");
  return decision;
}

absl::Status AutoCompression::Start() {
  CalibrationOptions options;
  options.num_workers = store_.num_workers();
  ASSIGN_OR_RETURN(codec_,
                   MeasureCodec(options_.codec, options_.compression, options));
  reduce_elems_per_s_ = MeasureReduce(options).value;
  const std::vector<TensorReport> reports = store_.Report();
  for (size_t key = 0; key < reports.size(); ++key) {
    const TensorReport& report = reports[key];
    const bool by_rule = absl::StartsWith(report.reason, "rule");
    elems_.push_back(static_cast<int64_t>(report.num_elems));
    may_compress_.push_back(report.codec != "none" && !by_rule);
    if (by_rule) {
      RETURN_IF_ERROR(store_.SetCodec(static_cast<Key>(key), 0));
    }
  }
  Enter(State::kMeasureDense, kSettleSteps);
  return absl::OkStatus();
}

void AutoCompression::Enter(State state, int settle_steps) {
  state_ = state;
  settle_ = settle_steps;
  num_wanted_ = state == State::kStable ? kReviewSteps : kMeasureSteps;
  samples_.clear();
}

absl::Status AutoCompression::Switch(const std::vector<bool>& is_compressed) {
  is_compressing_ = false;
  for (size_t key = 0; key < is_compressed.size(); ++key) {
    if (!may_compress_[key]) continue;
    RETURN_IF_ERROR(store_.SetCodec(static_cast<Key>(key),
                                    is_compressed[key] ? 0 : kDenseCodec));
    is_compressing_ |= is_compressed[key];
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> AutoCompression::AfterStep(
    const StepTimes& times) {
  ++step_;
  if (settle_ > 0) {
    --settle_;
    return std::vector<std::string>();
  }
  samples_.push_back(times);
  if (static_cast<int>(samples_.size()) < num_wanted_) {
    return std::vector<std::string>();
  }
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

absl::StatusOr<Observation> AutoCompression::GatherObservation() {
  const auto column = [this](double StepTimes::*time) {
    std::vector<double> values;
    for (const StepTimes& each : samples_) values.push_back(each.*time);
    return values;
  };
  const std::vector<double> exchanges = column(&StepTimes::exchange);
  Observation seen{.median = {.step = Median(column(&StepTimes::step)),
                              .exchange = Median(exchanges),
                              .wait = Median(column(&StepTimes::wait))},
                   .codec = codec_,
                   .reduce_elems_per_s = reduce_elems_per_s_};
  const double least = *std::min_element(exchanges.begin(), exchanges.end());
  if (seen.median.exchange > 0) {
    seen.exchange_spread =
        (seen.median.exchange - least) / seen.median.exchange;
  }
  Figures worst = ToFigures(seen);
  std::string text;
  for (const double figure : worst) {
    absl::StrAppendFormat(&text, "%s%.9g", text.empty() ? "" : " ", figure);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   store_.Gather("auto", text));
  for (const std::string& each : all) {
    ASSIGN_OR_RETURN(const Figures figures, ParseFigures(each));
    for (size_t i = 0; i < kNumFigures; ++i) {
      worst[i] = i < kNumTimes ? std::max(worst[i], figures[i])
                               : std::min(worst[i], figures[i]);
    }
  }
  FromFigures(worst, seen);
  // Spreads are this worker's: all must reckon with the same.
  for (const auto speed : kSpeeds) (seen.codec.*speed).spread = kCodecSpread;
  seen.codec.call_s.spread = kCodecSpread;
  return seen;
}

absl::StatusOr<std::vector<std::string>> AutoCompression::Decide() {
  ASSIGN_OR_RETURN(const Observation seen, GatherObservation());
  const ClusterCost cluster{.workers = store_.num_workers(),
                            .servers = store_.num_servers(),
                            .cores = static_cast<double>(options_.cores)};
  ASSIGN_OR_RETURN(const AutoDecision decision,
                   DecideCompression(elems_, may_compress_, cluster,
                                     options_.chunk_elems, seen));
  RETURN_IF_ERROR(Switch(decision.is_compressed));
  dense_step_s_ = seen.median.step;
  reference_s_ = seen.median.exchange;
  Enter(decision.any ? State::kCheck : State::kStable, kSettleSteps);
  return std::vector<std::string>{
      absl::StrCat("auto, step ", step_, ": ", decision.reason)};
}

absl::StatusOr<std::vector<std::string>> AutoCompression::Check() {
  ASSIGN_OR_RETURN(const Observation seen, GatherObservation());
  reference_s_ = seen.median.exchange;
  const std::string times = absl::StrFormat(
      "steps took %.3g ms dense, %.3g ms with %s (exchange %.3g ms)",
      1e3 * dense_step_s_, 1e3 * seen.median.step, codec_.name,
      1e3 * seen.median.exchange);
  if (seen.median.step <= kWorse * dense_step_s_) {
    Enter(State::kStable, 0);
    return std::vector<std::string>{
        absl::StrCat("auto, step ", step_, ": compression stays: ", times)};
  }
  RETURN_IF_ERROR(Switch(std::vector<bool>(elems_.size(), false)));
  was_taken_back_ = true;
  Enter(State::kStable, kSettleSteps);
  return std::vector<std::string>{
      absl::StrCat("auto, step ", step_, ": compression off again: ", times)};
}

absl::StatusOr<std::vector<std::string>> AutoCompression::Review() {
  ASSIGN_OR_RETURN(const Observation seen, GatherObservation());
  const double now = seen.median.exchange;
  if (was_taken_back_) {  // dense again: what later reviews compare with
    was_taken_back_ = false;
    reference_s_ = now;
  }
  if (now < kChanged * reference_s_ && now > reference_s_ / kChanged) {
    Enter(State::kStable, 0);
    return std::vector<std::string>();
  }
  const std::string line = absl::StrFormat(
      "auto, step %d: exchanges take %.3g ms, %.3g ms before: measuring anew",
      step_, 1e3 * now, 1e3 * reference_s_);
  RETURN_IF_ERROR(Switch(std::vector<bool>(elems_.size(), false)));
  Enter(State::kMeasureDense, kSettleSteps);
  return std::vector<std::string>{line};
}

}  // namespace telegrad
