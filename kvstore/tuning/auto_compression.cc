#include "kvstore/tuning/auto_compression.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/json_fields.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kvstore/job/path/gather_numbers.h"

namespace telegrad {
namespace {

// A switch takes effect two steps later, and the first steps warm up. Between
// two codecs is a dense step.
constexpr int kSettleSteps = 4;
constexpr size_t kMeasureSteps = 6;
constexpr size_t kWatchSteps = 64;
constexpr size_t kConfirmSteps = 16;
// A part of a step; less is not worth a loss.
constexpr double kLeastGain = 0.01;
// What was measured of a codec may be wrong by so much; one whose own work
// alone makes steps slower is not tried. What its messages take, only steps
// tell.
constexpr double kWorthATry = 1.1;
// Exchanges that take so much more or less time are another link or load.
constexpr double kChanged = 1.5;
// The part of a step that waiting must have changed by.
constexpr double kOfStep = 0.1;
constexpr double kSlowest = 1e5;  // bytes/s of a link
constexpr double kFastest = 1e12;
// A part of what messages are assumed to cost.
constexpr double kLeastCost = 1e-6;
constexpr Duration kAgainBudget = std::chrono::milliseconds(30);

Decision Tell(std::string choice, std::string why) {
  return {.what = Decision::Kind::kCodec,
          .choice = std::move(choice),
          .why = std::move(why)};
}

// A link's rate for people.
std::string Rate(double bytes_per_s) {
  if (bytes_per_s >= kFastest) return "that is not what takes time";
  return absl::StrFormat("of %.3g Gb/s", 8e-9 * bytes_per_s);
}

}  // namespace

absl::Status ParseAllowedCodecs(absl::string_view flag, absl::string_view list,
                                CompressionConfig& gc) {
  std::vector<std::string> names = absl::StrSplit(list, ',');
  if (names.size() > 1 + kMaxAlternatives) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": ", names.size(), " codecs; at most ", 1 + kMaxAlternatives));
  }
  std::vector<CodecSpec> specs;
  for (const std::string& name : names) {
    absl::StatusOr<CodecSpec> spec = ParseCodecSpec(name);
    if (!spec.ok()) {
      return absl::Status(
          spec.status().code(),
          absl::StrCat(flag, " '", list, "': ", spec.status().message()));
    }
    if (spec->codec->traits().lossless) {
      return absl::InvalidArgumentError(absl::StrCat(
          flag, " '", list, "': ", name, " is always possible; leave it out"));
    }
    for (const CodecSpec& other : specs) {
      if (other.codec != spec->codec || other.options != spec->options ||
          other.threshold != spec->threshold) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          flag, " '", list, "': ", name, " comes twice; once is enough"));
    }
    specs.push_back(*std::move(spec));
  }
  gc.type = names[0];
  gc.alternatives.assign(names.begin() + 1, names.end());
  return absl::OkStatus();
}

std::vector<std::string> CodecsToMeasure(const CodecControl& codecs,
                                         const CompressionConfig& compression) {
  std::set<std::string> names;
  for (const TensorReport& report : codecs.Report()) {
    names.insert(report.setting);
  }
  const std::vector<std::string> types = compression.types();
  names.insert(types.begin(), types.end());
  names.erase("none");
  return {names.begin(), names.end()};
}

std::string ToJson(const std::optional<AutoChoice>& choice) {
  if (!choice.has_value()) return "";
  return nlohmann::json{{"codec", choice->codec}, {"tensors", choice->tensors}}
      .dump();
}

absl::StatusOr<std::optional<AutoChoice>> AutoChoiceFromJson(
    absl::string_view text) {
  if (text.empty()) return std::optional<AutoChoice>();
  const auto read = ParseJson(text);
  const auto is_text = [](const auto& each) { return each.is_string(); };
  if (!read.is_object() || !read.contains("codec") ||
      !read["codec"].is_string() || !read.contains("tensors") ||
      !read["tensors"].is_array() ||
      !std::ranges::all_of(read["tensors"], is_text)) {
    return absl::InvalidArgumentError("no choice of 'auto'");
  }
  return AutoChoice{.codec = read["codec"].get<std::string>(),
                    .tensors = read["tensors"].get<std::vector<std::string>>()};
}

StepTimes MedianTimes(std::span<const StepTimes> samples) {
  const auto median = [&samples](double StepTimes::*time) {
    std::vector<double> values;
    for (const StepTimes& each : samples) values.push_back(each.*time);
    return Median(std::move(values));
  };
  return {.step = median(&StepTimes::step),
          .exchange = median(&StepTimes::exchange),
          .wait = median(&StepTimes::wait)};
}

absl::Status AutoCompression::Measure(const RunCalibrationOptions& how) {
  ASSIGN_OR_RETURN(const RunCalibration run, CalibrateRun(store_, how));
  calibration_ = run.agreed;
  notes_ = run.notes;
  // A process has its part of its machine's cores.
  double cores =
      std::min(1.0 + std::max(0, options_.threads),
               static_cast<double>(how.cpus) / std::max(1, options_.processes));
  const SlowestNumber numbers[] = {{&cores, /*is_time=*/false}};
  RETURN_IF_ERROR(GatherSlowest(store_.group(), "auto-cores", numbers));
  calibration_.cores.value = cores;
  return absl::OkStatus();
}

absl::StatusOr<AutoCompression::Decisions> AutoCompression::Start() {
  const std::vector<TensorReport> reports = store_.codecs().Report();
  given_ = CodecsOf(reports, /*is_choice=*/true);
  for (size_t key = 0; key < reports.size(); ++key) {
    profile_.tensors.push_back(
        {.name = reports[key].name,
         .num_elems = static_cast<int64_t>(reports[key].num_elems)});
    RETURN_IF_ERROR(store_.codecs().SetCodec(
        static_cast<Key>(key), reports[key].has_rule ? 0 : kDenseCodec));
  }
  RETURN_IF_ERROR(Measure(options_.speeds));
  given_ = CodecsOf(reports, /*is_choice=*/true, &calibration_);
  Enter(State::kDense, kSettleSteps - 1);
  return Decisions{Tell(
      absl::StrCat("off for ", kSettleSteps - 1 + kMeasureSteps, " steps"),
      absl::StrCat("then the fastest of none, ",
                   absl::StrJoin(options_.speeds.compression.types(), ", ")))};
}

std::optional<AutoChoice> AutoCompression::choice() const {
  if (state_ == State::kDense || state_ == State::kTry) return std::nullopt;
  AutoChoice kept{.codec = ways_[way_].name};
  for (size_t key = 0; key < ways_[way_].is_compressed.size(); ++key) {
    if (!ways_[way_].is_compressed[key]) continue;
    kept.tensors.push_back(profile_.tensors[key].name);
  }
  return kept;
}

absl::Status AutoCompression::Resume(const AutoChoice& choice) {
  RETURN_IF_ERROR(Start().status());
  ways_.resize(1);
  if (choice.codec != ways_[0].name) {
    const std::vector<std::string> types = options_.speeds.compression.types();
    const auto type = std::ranges::find(types, choice.codec);
    if (type == types.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("auto had chosen ", choice.codec, ", which is none of ",
                       absl::StrJoin(types, ", ")));
    }
    Way& way = ways_.emplace_back();
    way.name = choice.codec;
    way.codec = static_cast<int>(type - types.begin());
    way.is_compressed.resize(profile_.tensors.size());
    for (const std::string& name : choice.tensors) {
      const auto tensor =
          std::ranges::find(profile_.tensors, name, &ProfileTensor::name);
      if (tensor == profile_.tensors.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("auto had chosen ", choice.codec, " for a tensor ",
                         name, ", which is not there"));
      }
      const auto key = static_cast<size_t>(tensor - profile_.tensors.begin());
      way.is_compressed[key] = true;
    }
  }
  RETURN_IF_ERROR(Switch(ways_.size() - 1));
  Enter(State::kWatch, 0);
  return absl::OkStatus();
}

void AutoCompression::Enter(State state, int settle_steps) {
  state_ = state;
  settle_ = settle_steps;
  num_wanted_ = state == State::kWatch     ? kWatchSteps
                : state == State::kConfirm ? kConfirmSteps
                                           : kMeasureSteps;
  samples_.clear();
}

absl::Status AutoCompression::Switch(size_t way) {
  way_ = way;
  const Way& next = ways_[way];
  for (size_t key = 0; key < given_.size(); ++key) {
    if (!given_[key].empty()) continue;
    const bool is_compressed =
        next.codec != kDenseCodec && next.is_compressed[key];
    RETURN_IF_ERROR(store_.codecs().SetCodec(
        static_cast<Key>(key), is_compressed ? next.codec : kDenseCodec));
  }
  return absl::OkStatus();
}

absl::StatusOr<AutoCompression::Decisions> AutoCompression::AfterStep(
    const StepTimes& times) {
  ++step_;
  if (settle_ > 0) {
    --settle_;
    return Decisions();
  }
  samples_.push_back(times);
  if (samples_.size() < num_wanted_) return Decisions();
  StepTimes now = MedianTimes(samples_);
  const double least = std::ranges::min(samples_, {}, &StepTimes::wait).wait;
  double spread = now.wait > 0 ? (now.wait - least) / now.wait : 0;
  const SlowestNumber numbers[] = {
      {&now.step}, {&now.exchange}, {&now.wait}, {&spread}};
  RETURN_IF_ERROR(GatherSlowest(store_.group(), "auto", numbers));
  switch (state_) {
    case State::kDense:
      wait_spread_ = spread;
      return Predict(now);
    case State::kTry:
      ways_[way_].measured_s = now.step;
      return TryNext();
    default:
      return Review(now);
  }
}

PlanRequest AutoCompression::RequestFor(const std::string& codec) const {
  PlanRequest request;
  request.profile = profile_;
  request.workers = store_.group().num_pushers();
  request.servers = store_.group().num_servers();
  request.aggregation = {Aggregation::kDedicatedServers, "--kv-store"};
  request.chunk_bytes = {static_cast<int64_t>(4 * options_.chunk_elems),
                         "--chunk-elems"};
  request.is_link_of_busy_servers = true;  // as the steps have seen it
  request.compute_s = std::max(0.0, dense_.step - dense_.wait);
  request.gc_type = codec;
  request.tensor_codecs = given_;
  return request;
}

LinkFigures AutoCompression::LinkOf(double bytes_per_s,
                                    double cost_share) const {
  LinkFigures link = *AssumedCalibration().FindLink(Name(NetworkKind::kTcp));
  link.send = {.value = bytes_per_s,
               .spread = wait_spread_,
               .confidence = Confidence::kMeasured};
  link.receive = link.send;
  for (Figure* cost :
       {&link.latency_s, &link.message_cpu_s, &link.cpu_s_per_byte}) {
    cost->value *= cost_share;
  }
  return link;
}

absl::StatusOr<Plan> AutoCompression::PlanWith(const PlanRequest& request,
                                               const LinkFigures& link) const {
  Calibration calibration = calibration_;
  calibration.links.push_back(link);
  return MakePlan({}, calibration, request);
}

// The link with which the planner predicts what dense steps have waited: its
// rate; where no rate does, what messages cost is less than assumed.
absl::StatusOr<LinkFigures> AutoCompression::FitLink() const {
  const PlanRequest request = RequestFor("none");
  ASSIGN_OR_RETURN(const Plan fastest, PlanWith(request, LinkOf(kFastest)));
  const bool is_by_rate = fastest.exposed_s < dense_.wait;
  const auto link_at = [&](double x) {
    return is_by_rate ? LinkOf(std::exp(x)) : LinkOf(kFastest, std::exp(-x));
  };
  double low = is_by_rate ? std::log(kSlowest) : 0;
  double high = is_by_rate ? std::log(kFastest) : -std::log(kLeastCost);
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    ASSIGN_OR_RETURN(const Plan plan, PlanWith(request, link_at(middle)));
    (plan.exposed_s > dense_.wait ? low : high) = middle;
  }
  return link_at(high);
}

// As the planner assigns the codec to tensors; where it would not use it, as
// if it had been asked for.
absl::StatusOr<AutoCompression::Way> AutoCompression::WayOf(int codec) const {
  Way way{
      .name = options_.speeds.compression.types()[static_cast<size_t>(codec)],
      .codec = codec};
  PlanRequest request = RequestFor("auto");
  request.gc_allow = {way.name};
  ASSIGN_OR_RETURN(Plan plan, PlanWith(request, link_));
  const auto has_codec = [&way](const TensorPlan& tensor) {
    return tensor.codec == way.name;
  };
  if (std::ranges::none_of(plan.tensors, has_codec)) {
    request = RequestFor(way.name);
    ASSIGN_OR_RETURN(plan, PlanWith(request, link_));
  }
  for (const TensorPlan& tensor : plan.tensors) {
    way.is_compressed.push_back(has_codec(tensor));
  }
  way.predicted_s = request.compute_s + plan.exposed_s;
  ASSIGN_OR_RETURN(const Plan own, PlanWith(request, LinkOf(kFastest, 0)));
  way.own_s = request.compute_s + own.exposed_s;
  return way;
}

absl::StatusOr<AutoCompression::Decisions> AutoCompression::Predict(
    const StepTimes& now) {
  dense_ = now;
  ASSIGN_OR_RETURN(link_, FitLink());
  ways_ = {{.predicted_s = now.step, .measured_s = now.step}};
  way_ = 0;
  const std::vector<std::string> types = options_.speeds.compression.types();
  for (size_t i = 0; i < types.size(); ++i) {
    if (calibration_.FindCodec(types[i]) == nullptr) continue;
    ASSIGN_OR_RETURN(Way way, WayOf(static_cast<int>(i)));
    if (std::ranges::count(way.is_compressed, true) == 0) continue;
    ways_.push_back(std::move(way));
  }
  return TryNext();
}

// The first of those within 1 % of the fastest, which none must beat by that.
size_t AutoCompression::Best() const {
  double least = std::numeric_limits<double>::infinity();
  for (const Way& way : ways_) {
    if (way.measured_s > 0) least = std::min(least, way.measured_s);
  }
  size_t best = 0;
  while (ways_[best].measured_s <= 0 ||
         ways_[best].measured_s * (1 - kLeastGain) > least) {
    ++best;
  }
  return best;
}

std::string AutoCompression::Told() const {
  std::string text =
      absl::StrFormat("a link %s explains dense steps", Rate(link_.send.value));
  for (const Way& way : ways_) {
    absl::StrAppendFormat(
        &text, "; with %s %.3g ms %s", way.name,
        1e3 * (way.measured_s > 0 ? way.measured_s : way.predicted_s),
        way.measured_s > 0 ? "measured" : "predicted");
  }
  return text;
}

absl::StatusOr<AutoCompression::Decisions> AutoCompression::TryNext() {
  const size_t best = Best();
  const bool may_gain = dense_.wait > kLeastGain * dense_.step;
  size_t next = 0;
  for (size_t i = 1; may_gain && i < ways_.size(); ++i) {
    if (ways_[i].measured_s > 0 ||
        ways_[i].own_s > kWorthATry * ways_[best].measured_s) {
      continue;
    }
    if (next == 0 || ways_[i].predicted_s < ways_[next].predicted_s) next = i;
  }
  if (next != 0) {
    RETURN_IF_ERROR(Switch(next));
    Enter(State::kTry, kSettleSteps);
    return Decisions();
  }
  const bool changes = best != way_;
  RETURN_IF_ERROR(Switch(best));
  reference_.reset();
  Enter(State::kWatch, changes ? kSettleSteps : 0);
  const Way& way = ways_[best];
  if (way.codec == kDenseCodec) return Decisions{Tell("off", Told())};
  return Decisions{
      Tell(absl::StrCat(way.name, " for ",
                        std::ranges::count(way.is_compressed, true), " of ",
                        way.is_compressed.size(), " tensors"),
           Told())};
}

// What backward hides of an exchange changes it less than the link did: then
// waiting tells.
absl::StatusOr<AutoCompression::Decisions> AutoCompression::Review(
    const StepTimes& now) {
  const auto is_other = [](double a, double b) {
    return a > kChanged * b || b > kChanged * a;
  };
  const StepTimes before = reference_.value_or(now);
  const bool has_changed =
      is_other(now.exchange, before.exchange) ||
      (is_other(now.wait, before.wait) &&
       std::abs(now.wait - before.wait) > kOfStep * before.step);
  if (!has_changed || state_ == State::kWatch) {
    if (!reference_.has_value()) reference_ = now;
    Enter(has_changed ? State::kConfirm : State::kWatch, 0);
    return Decisions();
  }
  RunCalibrationOptions again = options_.speeds;
  again.cache = nullptr;  // the cores' load may be what changed
  again.budget = kAgainBudget;
  RETURN_IF_ERROR(Measure(again));
  RETURN_IF_ERROR(Switch(0));
  Enter(State::kDense, kSettleSteps);
  return Decisions{
      Tell("off while all is measured anew",
           absl::StrFormat("exchanges take %.3g ms, %.3g ms before",
                           1e3 * now.exchange, 1e3 * before.exchange))};
}

}  // namespace telegrad
