#include "kvstore/auto_compression.h"

#include <algorithm>
#include <array>
#include <cmath>
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

Aggregation AggregationOf(const ClusterCost&) {
  return Aggregation::kDedicatedServers;
}

// An exchange of all tensors, those of `compressed` by `codec`.
double ExchangeSeconds(std::span<const int64_t> elems,
                       const std::vector<bool>& compressed,
                       const ClusterCost& cluster, const CodecCost& codec,
                       size_t chunk_elems) {
  const Pipeline dense =
      MakePipeline(AggregationOf(cluster), cluster, DenseCost(cluster));
  const Pipeline coded = MakePipeline(AggregationOf(cluster), cluster, codec);
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

// A summary on its way to the other workers.
constexpr size_t kNumFigures = 11;
using Figures = std::array<double, kNumFigures>;

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
    size_t chunk_elems, const DenseObservation& seen) {
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
  decision.break_even_bytes_per_s = BreakEvenBytesPerS(
      AggregationOf(cluster), AggregationOf(cluster), cluster, codec, largest);
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
  reduce_ = MeasureReduce(options);
  const std::vector<TensorReport> reports = store_.Report();
  for (size_t key = 0; key < reports.size(); ++key) {
    const TensorReport& report = reports[key];
    const bool by_rule = absl::StartsWith(report.reason, "rule");
    elems_.push_back(static_cast<int64_t>(report.num_elems));
    may_compress_.push_back(report.codec != "none" && !by_rule);
    if (by_rule) {
      RETURN_IF_ERROR(store_.SetCompressed(static_cast<Key>(key), true));
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
    RETURN_IF_ERROR(
        store_.SetCompressed(static_cast<Key>(key), is_compressed[key]));
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

absl::StatusOr<AutoCompression::Summary> AutoCompression::GatherSummary() {
  std::vector<double> steps;
  std::vector<double> exchanges;
  std::vector<double> waits;
  for (const StepTimes& each : samples_) {
    steps.push_back(each.step);
    exchanges.push_back(each.exchange);
    waits.push_back(each.wait);
  }
  const double exchange = Median(exchanges);
  const double least = *std::min_element(exchanges.begin(), exchanges.end());
  const Figures mine = {Median(steps),
                        exchange,
                        Median(waits),
                        exchange > 0 ? (exchange - least) / exchange : 0,
                        codec_.encode.value,
                        codec_.decode.value,
                        codec_.decode_add.value,
                        codec_.sum.value,
                        codec_.reply_encode.value,
                        codec_.call_s.value,
                        reduce_.value};
  std::string text;
  for (const double figure : mine) {
    absl::StrAppendFormat(&text, "%s%.9g", text.empty() ? "" : " ", figure);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   store_.Gather("auto", text));
  Figures worst = mine;
  for (const std::string& each : all) {
    ASSIGN_OR_RETURN(const Figures figures, ParseFigures(each));
    for (size_t i = 0; i < kNumFigures; ++i) {
      const bool is_speed = (i >= 4 && i <= 8) || i == 10;
      worst[i] = is_speed ? std::min(worst[i], figures[i])
                          : std::max(worst[i], figures[i]);
    }
  }
  Summary summary{.median = {worst[0], worst[1], worst[2]},
                  .exchange_spread = worst[3],
                  .codec = codec_,
                  .reduce = reduce_};
  summary.codec.encode.value = worst[4];
  summary.codec.decode.value = worst[5];
  summary.codec.decode_add.value = worst[6];
  summary.codec.sum.value = worst[7];
  summary.codec.reply_encode.value = worst[8];
  summary.codec.call_s.value = worst[9];
  summary.reduce.value = worst[10];
  // Spreads are this worker's: all must reckon with the same.
  for (Figure* figure :
       {&summary.codec.encode, &summary.codec.decode, &summary.codec.decode_add,
        &summary.codec.sum, &summary.codec.reply_encode, &summary.codec.call_s,
        &summary.reduce}) {
    figure->spread = kCodecSpread;
  }
  return summary;
}

absl::StatusOr<std::vector<std::string>> AutoCompression::Decide() {
  ASSIGN_OR_RETURN(const Summary summary, GatherSummary());
  const ClusterCost cluster{.workers = store_.num_workers(),
                            .servers = store_.num_servers(),
                            .cores = static_cast<double>(options_.cores),
                            .reduce_elems_per_s = summary.reduce.value};
  ASSIGN_OR_RETURN(
      const AutoDecision decision,
      DecideCompression(elems_, may_compress_, cluster, options_.chunk_elems,
                        {.median = summary.median,
                         .exchange_spread = summary.exchange_spread,
                         .codec = summary.codec,
                         .reduce = summary.reduce}));
  RETURN_IF_ERROR(Switch(decision.is_compressed));
  dense_step_s_ = summary.median.step;
  reference_s_ = summary.median.exchange;
  Enter(decision.any ? State::kCheck : State::kStable, kSettleSteps);
  return std::vector<std::string>{
      absl::StrCat("auto, step ", step_, ": ", decision.reason)};
}

absl::StatusOr<std::vector<std::string>> AutoCompression::Check() {
  ASSIGN_OR_RETURN(const Summary summary, GatherSummary());
  reference_s_ = summary.median.exchange;
  const std::string times = absl::StrFormat(
      "steps took %.3g ms dense, %.3g ms with %s (exchange %.3g ms)",
      1e3 * dense_step_s_, 1e3 * summary.median.step, codec_.name,
      1e3 * summary.median.exchange);
  if (summary.median.step <= kWorse * dense_step_s_) {
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
  ASSIGN_OR_RETURN(const Summary summary, GatherSummary());
  const double now = summary.median.exchange;
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
