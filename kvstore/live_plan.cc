#include "kvstore/live_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kvstore/gather_numbers.h"

namespace telegrad {
namespace {

constexpr int64_t kSettleSteps = 3;  // the first ones warm up
constexpr size_t kFirstSteps = 16;
constexpr size_t kReviewSteps = 64;
constexpr size_t kConfirmSteps = 16;
// Exchanges that take so much more or less time are another link or load.
constexpr double kChanged = 1.5;
constexpr double kOfStep = 0.1;  // that waiting must have changed by
// Of the time, for measuring again.
constexpr double kMostShare = 0.01;
constexpr double kAlike = 0.99;  // exchanges with other chunks
constexpr Duration kAgainBudget = std::chrono::milliseconds(30);
constexpr double kGbit = 1e9 / 8;
// Elements of chunks that are worth a look: 256 KiB to 16 MiB of gradient.
constexpr int64_t kLeastChunk = int64_t{1} << 16;
constexpr int64_t kMostChunk = int64_t{1} << 22;

double Rate(const LinkFigures& link) {
  return link.receive.value > 0 ? std::min(link.send.value, link.receive.value)
                                : link.send.value;
}

// "compression 2bit: ...", that or the last that the plan has.
std::string ReasonOf(const Plan& plan, absl::string_view what) {
  for (const std::string& reason : plan.reasons) {
    if (absl::StartsWith(reason, what)) return reason;
  }
  return plan.reasons.empty() ? "" : plan.reasons.back();
}

std::string Count(const Plan& plan) {
  const auto compressed = std::count_if(
      plan.tensors.begin(), plan.tensors.end(),
      [](const TensorPlan& each) { return each.codec != "none"; });
  return absl::StrCat(compressed, " of ", plan.tensors.size(), " tensors");
}

}  // namespace

LivePlan::LivePlan(KVStore& store, LivePlanOptions options)
    : store_(store), options_(std::move(options)) {
  Enter(State::kFirst);
  settle_ = kSettleSteps + options_.speeds.compression.warmup_steps;
}

std::string LivePlan::Prefix() const {
  return absl::StrCat("plan, step ", step_, ": ");
}

// At first what the run does; later what would be best of what it may do.
PlanRequest LivePlan::RequestFor(bool is_first) const {
  PlanRequest request;
  request.profile = options_.profile;
  request.workers = store_.num_workers();
  request.servers = store_.num_servers();
  request.is_link_of_busy_servers = true;
  request.chunk_bytes = static_cast<int64_t>(4 * options_.chunk_elems);
  request.compute_s = compute_s_;
  request.gc_type = allowed_.empty() ? "none" : "auto";
  request.gc_allow = allowed_;
  request.tensor_codecs = is_first ? codecs_ : given_;
  return request;
}

absl::Status LivePlan::AgreeOnThreads() {
  threads_ = static_cast<double>(std::max(0, options_.threads));
  const SlowestNumber numbers[] = {{&threads_, /*is_time=*/false}};
  return GatherSlowest(store_, "plan-threads", numbers);
}

// Of one worker's process: its part of its machine's cores and link.
void LivePlan::SetCalibration(const Calibration& speeds,
                              const LinkFigures& link) {
  speeds_ = speeds;
  link_ = link;
  calibration_ = speeds;
  const double processes = store_.num_workers() + store_.num_servers();
  const double machines = std::max(1, options_.machines);
  calibration_.cores.value =
      std::min(1.0 + threads_, speeds.cores.value * machines / processes);
  LinkFigures mine = LinkOf(options_.network, link, speeds.handover_s);
  // A plan of no machine in particular is one for TCP.
  mine.name = Name(NetworkKind::kTcp);
  if (machines > 1) {
    const double share = machines / store_.num_workers();
    mine.send.value *= share;
    mine.receive.value *= share;
  }
  calibration_.links = {mine};
}

absl::StatusOr<LivePlan::Lines> LivePlan::Start(const Calibration& speeds,
                                                const LinkFigures& link) {
  RETURN_IF_ERROR(AgreeOnThreads());
  SetCalibration(speeds, link);
  const std::vector<TensorReport> reports = store_.Report();
  given_ = CodecsOf(reports, /*is_choice=*/true, &calibration_);
  codecs_ = CodecsOf(reports, options_.is_auto, &calibration_);
  allowed_ = ChoicesOf(options_.speeds.compression, calibration_);
  absl::StatusOr<Plan> plan = MakePlan({}, calibration_, RequestFor(true));
  if (!plan.ok()) {
    is_off_ = true;  // all workers alike: their figures are the same
    return Lines{absl::StrCat("exchange: ", plan.status().message())};
  }
  plan_ = *std::move(plan);
  return StartLines();
}

LivePlan::Lines LivePlan::StartLines() const {
  const std::string with =
      plan_.codec == "none"
          ? absl::StrFormat("%.3g ms without compression", 1e3 * plan_.comm_s)
          : absl::StrFormat("%.3g ms with %s, %.3g ms without",
                            1e3 * plan_.comm_s, plan_.codec,
                            1e3 * plan_.comm_dense_s);
  Lines lines = {
      ReasonOf(plan_, "compression"),
      absl::StrFormat(
          "exchange predicted %s; by measured speeds of %d worker(s), %d "
          "server(s), %.2g core(s) each",
          with, plan_.workers, plan_.servers, calibration_.cores.value),
      ChunkLine(), "priority first layers first; followed"};
  if (options_.is_auto) {
    lines[0] += "; --gc-type auto decides by the steps that it measures";
  }
  return lines;
}

// One size for all tensors is what the flag can give.
std::string LivePlan::ChunkLine() const {
  double best_s = plan_.comm_s;
  int64_t best_elems = 0;
  for (int64_t elems = kLeastChunk; elems <= kMostChunk; elems *= 2) {
    PlanRequest request = RequestFor(true);
    request.chunk_bytes = 4 * elems;
    const absl::StatusOr<Plan> plan = MakePlan({}, calibration_, request);
    if (!plan.ok() || plan->comm_s >= best_s) continue;
    best_s = plan->comm_s;
    best_elems = elems;
  }
  const std::string given = absl::StrCat("chunk ", options_.chunk_elems,
                                         " elements for all tensors "
                                         "(--chunk-elems): ");
  if (best_elems == 0 || !std::isfinite(plan_.comm_s) ||
      best_s > kAlike * plan_.comm_s) {
    return absl::StrCat(given, "no other is faster");
  }
  return absl::StrFormat(
      "%sexchange predicted %.3g ms, %.3g ms with --chunk-elems %d; not "
      "followed: results must not depend on measured speeds",
      given, 1e3 * plan_.comm_s, 1e3 * best_s, best_elems);
}

std::vector<int> LivePlan::priorities() const {
  std::vector<int> priorities;
  for (const TensorPlan& each : plan_.tensors) {
    priorities.push_back(each.priority);
  }
  return priorities;
}

void LivePlan::Enter(State state) {
  state_ = state;
  num_wanted_ = state == State::kFirst   ? kFirstSteps
                : state == State::kWatch ? kReviewSteps
                                         : kConfirmSteps;
  samples_.clear();
}

// The slowest worker's.
absl::StatusOr<StepTimes> LivePlan::GatherMedians() {
  StepTimes times = MedianTimes(samples_);
  const SlowestNumber numbers[] = {
      {&times.step}, {&times.exchange}, {&times.wait}};
  RETURN_IF_ERROR(GatherSlowest(store_, "plan-steps", numbers));
  return times;
}

// What backward hides of an exchange changes it less than the link did: then
// waiting tells.
bool LivePlan::HasChanged(const StepTimes& now) const {
  const auto is_other = [](double a, double b) {
    return a > kChanged * b || b > kChanged * a;
  };
  return is_other(now.exchange, reference_.exchange) ||
         (is_other(now.wait, reference_.wait) &&
          std::abs(now.wait - reference_.wait) > kOfStep * reference_.step);
}

absl::StatusOr<LivePlan::Lines> LivePlan::AfterStep(const StepTimes& times) {
  ++step_;
  if (options_.is_auto || is_off_) return Lines();
  if (settle_ > 0) {
    --settle_;
    return Lines();
  }
  samples_.push_back(times);
  if (samples_.size() < num_wanted_) return Lines();
  ASSIGN_OR_RETURN(const StepTimes now, GatherMedians());
  if (state_ == State::kFirst) {
    reference_ = now;
    compute_s_ = std::max(0.0, now.step - now.wait);
    const double predicted_s = plan_.comm_s;
    const std::string verdict = Revise();
    Enter(State::kWatch);
    return Lines{absl::StrFormat(
        "%ssteps take %.3g ms, %.3g ms of it without waiting; exchange %.3g "
        "ms, %.3g ms predicted; %s",
        Prefix(), 1e3 * now.step, 1e3 * compute_s_, 1e3 * now.exchange,
        1e3 * predicted_s, verdict)};
  }
  if (!HasChanged(now) || step_ < not_before_) {
    Enter(State::kWatch);
    return Lines();
  }
  if (state_ == State::kWatch) {
    Enter(State::kConfirm);
    return Lines();
  }
  Enter(State::kWatch);
  return MeasureAnew(now);
}

absl::StatusOr<double> LivePlan::Pause(TimePoint start, double step_s) {
  double cost_s = SecondsSince(start);
  const SlowestNumber numbers[] = {{&cost_s}};
  RETURN_IF_ERROR(GatherSlowest(store_, "plan-cost", numbers));
  const double pause = cost_s / kMostShare / std::max(step_s, 1e-6);
  not_before_ = step_ + static_cast<int64_t>(std::min(pause, 1e12));
  return cost_s;
}

absl::StatusOr<LivePlan::Lines> LivePlan::MeasureAnew(const StepTimes& now) {
  const TimePoint start = Clock::now();
  RunCalibrationOptions speeds = options_.speeds;
  speeds.cache = nullptr;
  speeds.budget = kAgainBudget;
  ASSIGN_OR_RETURN(const RunCalibration again, CalibrateRun(store_, speeds));
  ASSIGN_OR_RETURN(const LinkFigures link,
                   store_.MeasureLink(options_.link_time));
  ASSIGN_OR_RETURN(const double cost_s, Pause(start, now.step));
  const std::string what = absl::StrFormat(
      "exchanges take %.3g ms, %.3g ms before (waiting %.3g ms, %.3g ms "
      "before): link %.3g Gb/s, %.3g before; a core adds %.3g elements/s, %.3g "
      "before (measured in %.2g s)",
      1e3 * now.exchange, 1e3 * reference_.exchange, 1e3 * now.wait,
      1e3 * reference_.wait, Rate(link) / kGbit, Rate(link_) / kGbit,
      again.agreed.reduce.value, speeds_.reduce.value, cost_s);
  reference_ = now;
  compute_s_ = std::max(0.0, now.step - now.wait);
  SetCalibration(again.agreed, link);
  const std::string verdict = Revise();
  return Lines{absl::StrCat(Prefix(), what, "; ", verdict)};
}

std::string LivePlan::Revise() {
  absl::StatusOr<Plan> next =
      RevisePlan(plan_, {}, calibration_, RequestFor(false));
  if (!next.ok()) return std::string(next.status().message());
  const bool has_changed = next->tensors != plan_.tensors;
  plan_ = *std::move(next);
  const std::string predicted =
      absl::StrFormat("exchange predicted %.3g ms, %.3g ms without compression",
                      1e3 * plan_.comm_s, 1e3 * plan_.comm_dense_s);
  if (!has_changed) {
    return absl::StrCat(plan_.reasons.back(), "; ", predicted);
  }
  return absl::StrCat(
      "plan revised: would now choose ", plan_.codec, " for ", Count(plan_),
      " (", ReasonOf(plan_, "compression"), "), ", plan_.reasons.back(), "; ",
      predicted,
      options_.is_auto ? "" : "; this run keeps its codec (--gc-type)");
}

absl::StatusOr<LivePlan::Lines> LivePlan::AfterDecision(
    const AutoMeasurement& measured) {
  if (is_off_) return Lines();
  const StepTimes& dense = measured.seen.median;
  compute_s_ = std::max(0.0, dense.step - dense.wait);
  std::string link_text;
  if (!measured.is_first) {
    LinkFigures link = link_;
    if (step_ >= not_before_) {
      const TimePoint start = Clock::now();
      ASSIGN_OR_RETURN(link, store_.MeasureLink(options_.link_time));
      RETURN_IF_ERROR(Pause(start, dense.step).status());
      link_text = absl::StrFormat("link %.3g Gb/s, %.3g before; ",
                                  Rate(link) / kGbit, Rate(link_) / kGbit);
    }
    Calibration speeds = speeds_;
    speeds.codecs = measured.seen.codecs;
    speeds.reduce.value = measured.seen.reduce_elems_per_s;
    SetCalibration(speeds, link);
  }
  const std::string verdict = Revise();
  return Lines{absl::StrFormat(
      "%sdense exchanges take %.3g ms; %s%s; --gc-type auto uses %s", Prefix(),
      1e3 * dense.exchange, link_text, verdict, measured.name)};
}

}  // namespace telegrad
