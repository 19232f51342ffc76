#include "trainer/run/stragglers.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "kvstore/job/path/data_path.h"

namespace telegrad {
namespace {

constexpr double kLeastTimes = 2;
// A share of a step; less costs nobody much.
constexpr double kLeastShare = 0.1;
constexpr double kMostTimes = 100;  // no larger ratio is told
constexpr int64_t kLeastSteps = 5;
constexpr Duration kNoteEvery = std::chrono::milliseconds(500);
constexpr Duration kLookEvery = std::chrono::seconds(2);
constexpr Duration kTellEvery = std::chrono::seconds(60);

double LowerMedian(std::vector<double> values) {
  absl::c_sort(values);
  return values[(values.size() - 1) / 2];
}

bool IsSlow(double seconds, double median, double step_s) {
  return seconds >= kLeastTimes * median &&
         seconds - median >= kLeastShare * step_s;
}

// Seconds of one step.
double PerStep(const StepShares& shares, double StepShares::*time) {
  return shares.*time / static_cast<double>(shares.steps);
}

double WaitPerStep(const StepShares& shares) {
  return PerStep(shares, &StepShares::step_s) -
         PerStep(shares, &StepShares::compute_s);
}

// Codes and frames that are hidden behind the others' computing cost nobody
// anything.
bool OthersWait(std::span<const StepShares> workers, size_t rank,
                double step_s) {
  std::vector<double> waits;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (i != rank) waits.push_back(WaitPerStep(workers[i]));
  }
  return LowerMedian(std::move(waits)) >= kLeastShare * step_s;
}

// Finds servers that are slow as most of those that push see them.
std::vector<Straggler> FindServers(std::span<const StepShares> workers,
                                   double step_s) {
  std::map<int, std::vector<const StepShares*>> by_server;
  size_t num_pushers = 0;
  for (const StepShares& each : workers) {
    num_pushers += each.pushes ? 1 : 0;
    if (each.server >= 0 && IsSlow(each.answer_s, each.answers_s, step_s) &&
        WaitPerStep(each) >= kLeastShare * step_s) {
      by_server[each.server].push_back(&each);
    }
  }
  std::vector<Straggler> found;
  for (const auto& [server, seen_by] : by_server) {
    if (2 * seen_by.size() <= num_pushers) continue;
    const StepShares& one = *seen_by[seen_by.size() / 2];
    found.push_back({.who = absl::StrCat("server/", server),
                     .cause = "server",
                     .seconds = one.answer_s,
                     .median = one.answers_s});
  }
  return found;
}

StepShares Less(StepShares now, const StepShares& before) {
  now.steps -= before.steps;
  now.step_s -= before.step_s;
  now.compute_s -= before.compute_s;
  now.codec_s -= before.codec_s;
  now.network_s -= before.network_s;
  return now;
}

}  // namespace

std::string ToText(const StepShares& shares) {
  return absl::StrFormat("%d %.6g %.6g %.6g %.6g %d %d %.6g %.6g", shares.steps,
                         shares.step_s, shares.compute_s, shares.codec_s,
                         shares.network_s, shares.pushes ? 1 : 0, shares.server,
                         shares.answer_s, shares.answers_s);
}

std::optional<StepShares> ReadShares(absl::string_view text) {
  const std::vector<absl::string_view> cells = absl::StrSplit(text, ' ');
  StepShares shares;
  int pushes = 0;
  if (cells.size() != 9 || !absl::SimpleAtoi(cells[0], &shares.steps) ||
      shares.steps < 0 || !absl::SimpleAtoi(cells[5], &pushes) ||
      !absl::SimpleAtoi(cells[6], &shares.server)) {
    return std::nullopt;
  }
  shares.pushes = pushes != 0;
  double* const times[] = {&shares.step_s,   &shares.compute_s,
                           &shares.codec_s,  &shares.network_s,
                           &shares.answer_s, &shares.answers_s};
  constexpr size_t kCells[] = {1, 2, 3, 4, 7, 8};
  for (size_t i = 0; i < std::size(times); ++i) {
    if (!absl::SimpleAtod(cells[kCells[i]], times[i]) ||
        !std::isfinite(*times[i]) || *times[i] < 0) {
      return std::nullopt;
    }
  }
  return shares;
}

std::vector<Straggler> FindStragglers(std::span<const StepShares> workers) {
  const auto is_early = [](const StepShares& each) {
    return each.steps < kLeastSteps;
  };
  if (workers.size() < 2 || absl::c_any_of(workers, is_early)) return {};
  struct Cause {
    const char* name;
    double StepShares::*time;
    bool is_of_pushers;
  };
  constexpr Cause kCauses[] = {{"compute", &StepShares::compute_s, false},
                               {"encode", &StepShares::codec_s, true},
                               {"network", &StepShares::network_s, true}};
  std::vector<double> steps;
  for (const StepShares& each : workers) {
    steps.push_back(PerStep(each, &StepShares::step_s));
  }
  const double step_s = LowerMedian(steps);
  std::map<size_t, Straggler> by_rank;
  for (const Cause& cause : kCauses) {
    std::vector<double> times;
    for (const StepShares& each : workers) {
      if (cause.is_of_pushers && !each.pushes) continue;
      times.push_back(PerStep(each, cause.time));
    }
    if (times.size() < 2) continue;
    const double median = LowerMedian(times);
    for (size_t rank = 0; rank < workers.size(); ++rank) {
      const double seconds = PerStep(workers[rank], cause.time);
      const bool counts =
          !cause.is_of_pushers ||
          (workers[rank].pushes && OthersWait(workers, rank, step_s));
      if (!counts || !IsSlow(seconds, median, step_s)) continue;
      Straggler& straggler = by_rank[rank];
      if (seconds - median <= straggler.seconds - straggler.median) continue;
      straggler = {absl::StrCat("worker/", rank), cause.name, seconds, median};
    }
  }
  std::vector<Straggler> found;
  for (auto& [rank, straggler] : by_rank) found.push_back(straggler);
  for (Straggler& each : FindServers(workers, step_s)) found.push_back(each);
  return found;
}

std::string ToText(const Straggler& straggler) {
  const double times = straggler.median * kMostTimes > straggler.seconds
                           ? straggler.seconds / straggler.median
                           : kMostTimes;
  return absl::StrFormat(
      "straggler %s: %s%.1f times the median, %s: %.3g ms, not %.3g ms",
      straggler.who, times < kMostTimes ? "" : "more than ", times,
      straggler.cause, 1e3 * straggler.seconds, 1e3 * straggler.median);
}

StepShares StragglerWatch::mine() const {
  StepShares shares = sums_;
  const StoreStats now = store_.stats();
  const std::vector<int>& pushers = store_.group().data_path().plan.pushers;
  const int rank = store_.group().rank();
  const StoreStats first = first_.value_or(StoreStats());
  shares.codec_s = now.codec_s - first.codec_s;
  shares.network_s = now.network_s - first.network_s;
  shares.pushes = pushers.empty() || pushers[static_cast<size_t>(rank)] == rank;
  if (now.answer_s.size() < 2) return shares;
  const auto slowest = absl::c_max_element(now.answer_s);
  shares.server = static_cast<int>(slowest - now.answer_s.begin());
  shares.answer_s = *slowest;
  shares.answers_s = LowerMedian(now.answer_s);
  return shares;
}

std::vector<Straggler> StragglerWatch::AfterStep(double step_s, double wait_s) {
  WorkerGroup& group = store_.group();
  if (group.num_workers() < 2) return {};
  if (!first_.has_value()) {
    first_ = store_.stats();
    return {};
  }
  ++sums_.steps;
  sums_.step_s += step_s;
  sums_.compute_s += std::max(0.0, step_s - wait_s);
  const TimePoint now = Clock::now();
  if (now < next_note_) return {};
  next_note_ = now + kNoteEvery;
  group.SetNote(ToText(mine()));
  return group.rank() == 0 ? Look(now) : std::vector<Straggler>();
}

std::vector<Straggler> StragglerWatch::Look(TimePoint now) {
  if (now < next_look_) return {};
  std::vector<StepShares> all;
  for (const std::string& note : store_.group().Notes()) {
    const std::optional<StepShares> shares = ReadShares(note);
    if (!shares.has_value()) return {};
    all.push_back(*shares);
  }
  if (all.empty()) return {};
  std::vector<StepShares> since = all;
  for (size_t i = 0; i < before_.size(); ++i) {
    since[i] = Less(all[i], before_[i]);
    if (since[i].steps < kLeastSteps) return {};
  }
  const bool is_first = before_.empty();
  before_ = std::move(all);
  next_look_ = now + kLookEvery;
  if (is_first) return {};
  std::vector<Straggler> found;
  for (Straggler& each : FindStragglers(since)) {
    const auto [again, is_new] =
        told_.try_emplace(absl::StrCat(each.who, " ", each.cause), now);
    if (now < again->second) continue;
    again->second = now + kTellEvery;
    each.is_again = !is_new;
    found.push_back(std::move(each));
  }
  return found;
}

}  // namespace telegrad
