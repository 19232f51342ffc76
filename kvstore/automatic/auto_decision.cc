#include "kvstore/auto_decision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr double kLeastGain = 0.01;  // of a step
constexpr double kAlike = 1.05;      // exchanges of two codecs
constexpr double kHysteresis = 1.2;  // for another codec than the current one
constexpr double kSlowest = 1e5;     // bytes/s of a link
constexpr double kFastest = 1e12;

// A link's rate for people.
std::string Rate(double bytes_per_s) {
  if (bytes_per_s >= kFastest) return "beyond 8000 Gb/s";
  return absl::StrFormat("%.3g Gb/s", 8e-9 * bytes_per_s);
}

// Servers of their own, or as if: the fit of the link makes up for it.
constexpr Aggregation kServers = Aggregation::kDedicatedServers;

// The tensors of a job on a cluster whose link's rate is known.
struct Workload {
  std::span<const int64_t> elems = {};
  std::span<const std::string> given = {};  // as in DecideCompression
  std::map<std::string, CodecCost> costs = {};
  ClusterCost cluster = {};
  size_t chunk_elems = 0;

  bool IsOpen(size_t tensor) const { return given[tensor].empty(); }

  // An exchange of all tensors, those of `compressed` by `codec`.
  double ExchangeSeconds(const std::vector<bool>& compressed,
                         const CodecCost& codec) const {
    const Pipeline dense = MakePipeline(kServers, cluster, DenseCost(cluster));
    const Pipeline coded = MakePipeline(kServers, cluster, codec);
    std::map<std::string, Pipeline> others;
    for (const auto& [name, cost] : costs) {
      others[name] = MakePipeline(kServers, cluster, cost);
    }
    std::vector<TensorCost> tensors;
    for (size_t i = 0; i < elems.size(); ++i) {
      const auto other = others.find(given[i]);
      tensors.push_back({.pipeline = compressed[i]           ? &coded
                                     : other != others.end() ? &other->second
                                                             : &dense,
                         .elems = elems[i],
                         .chunk_elems = static_cast<int64_t>(chunk_elems)});
    }
    return FinishSeconds(tensors);
  }
  // Without what is still to be decided.
  double OpenSeconds() const {
    return ExchangeSeconds(std::vector<bool>(elems.size(), false),
                           DenseCost(cluster));
  }
};

// The rate with which they take `seconds`; infinity where they take
// longer at any.
double FitLink(Workload load, double seconds) {
  const auto at = [&load](double rate) {
    load.cluster.bytes_per_s = rate;
    return load.OpenSeconds();
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

absl::StatusOr<CodecCandidate> MakeCandidate(const Workload& load,
                                             const CodecFigures& figures,
                                             const Observation& seen) {
  ASSIGN_OR_RETURN(const CodecCost codec, CostOf(figures, load.cluster, 0));
  ASSIGN_OR_RETURN(const CodecCost slow, CostOf(figures, load.cluster, -1));
  CodecCandidate made{.name = figures.name};
  made.is_compressed.assign(load.elems.size(), false);
  int64_t largest = 1;
  bool any = false;
  for (size_t i = 0; i < load.elems.size(); ++i) {
    if (!load.IsOpen(i)) continue;
    largest = std::max(largest, load.elems[i]);
    const Workload one{.elems = load.elems.subspan(i, 1),
                       .given = load.given.subspan(i, 1),
                       .cluster = load.cluster,
                       .chunk_elems = load.chunk_elems};
    made.is_compressed[i] =
        one.ExchangeSeconds({true}, slow) < one.OpenSeconds();
    any |= made.is_compressed[i];
  }
  made.break_even_bytes_per_s =
      BreakEvenBytesPerS(kServers, kServers, load.cluster, codec, largest);
  made.exchange_s = load.ExchangeSeconds(made.is_compressed, codec);
  const double pessimistic = load.ExchangeSeconds(made.is_compressed, slow);
  const double dense = seen.median.exchange;
  const double gain = std::min(seen.median.wait, dense - made.exchange_s);
  made.is_worth_it = any && pessimistic < dense * (1 - seen.exchange_spread) &&
                     gain > kLeastGain * seen.median.step;
  return made;
}

// The codec of the link's comparison: the one that is used, else the one that
// would pay on the fastest links.
const CodecCandidate& Named(const AutoDecision& decision) {
  if (decision.any()) {
    return decision.candidates[static_cast<size_t>(decision.codec)];
  }
  return *std::max_element(
      decision.candidates.begin(), decision.candidates.end(),
      [](const CodecCandidate& a, const CodecCandidate& b) {
        return a.break_even_bytes_per_s < b.break_even_bytes_per_s;
      });
}

std::string Reason(const AutoDecision& decision, const StepTimes& dense) {
  const CodecCandidate& named = Named(decision);
  const bool below = decision.link_bytes_per_s < named.break_even_bytes_per_s;
  std::string reason = decision.any()
                           ? absl::StrCat("compression on, ", named.name,
                                          " for ", Counts(named.is_compressed))
                           : "compression off";
  absl::StrAppendFormat(
      &reason,
      ": link %s %s break-even %s of %s; exchange %.3g ms of a step of "
      "%.3g ms; predicted",
      Rate(decision.link_bytes_per_s), below ? "<" : ">",
      Rate(named.break_even_bytes_per_s), named.name, 1e3 * dense.exchange,
      1e3 * dense.step);
  const char* comma = "";
  for (const CodecCandidate& each : decision.candidates) {
    absl::StrAppendFormat(&reason, "%s %.3g ms with %s", comma,
                          1e3 * each.exchange_s, each.name);
    if (&each != &named) {
      absl::StrAppend(&reason, " (break-even ",
                      Rate(each.break_even_bytes_per_s), ")");
    }
    comma = ",";
  }
  if (!decision.any() && below) {
    absl::StrAppend(&reason,
                    "; that is less than the uncertainty, or hidden behind "
                    "backward");
  }
  return reason;
}

}  // namespace

int ChooseCodec(std::span<const CodecCandidate> candidates,
                const StepTimes& dense, int current) {
  const double hidden = std::max(0.0, dense.exchange - dense.wait);
  const auto seconds = [&](size_t i) {
    return candidates[i].is_worth_it
               ? std::max(hidden, candidates[i].exchange_s)
               : std::numeric_limits<double>::infinity();
  };
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < candidates.size(); ++i) {
    best = std::min(best, seconds(i));
  }
  if (std::isinf(best)) return kDenseCodec;
  if (current != kDenseCodec &&
      seconds(static_cast<size_t>(current)) <= kHysteresis * best) {
    return current;
  }
  size_t chosen = 0;
  while (seconds(chosen) > kAlike * best) ++chosen;
  return static_cast<int>(chosen);
}

absl::StatusOr<AutoDecision> DecideCompression(
    std::span<const int64_t> tensor_elems, std::span<const std::string> given,
    ClusterCost cluster, size_t chunk_elems, const Observation& seen,
    int current) {
  if (seen.codecs.empty()) {
    return absl::InvalidArgumentError("no codec that compression may use");
  }
  cluster.reduce_elems_per_s = seen.reduce_elems_per_s;
  Workload load{.elems = tensor_elems,
                .given = given,
                .cluster = cluster,
                .chunk_elems = chunk_elems};
  for (const CodecFigures& codec : seen.given_codecs) {
    // Where it cannot be reckoned with, as if its tensors were dense.
    const auto cost = CostOf(codec, cluster);
    if (cost.ok()) load.costs[codec.name] = *cost;
  }
  AutoDecision decision;
  decision.link_bytes_per_s = FitLink(load, seen.median.exchange);
  load.cluster.bytes_per_s = std::min(decision.link_bytes_per_s, kFastest);
  for (const CodecFigures& codec : seen.codecs) {
    ASSIGN_OR_RETURN(decision.candidates.emplace_back(),
                     MakeCandidate(load, codec, seen));
  }
  decision.codec = ChooseCodec(decision.candidates, seen.median, current);
  decision.reason = Reason(decision, seen.median);
  return decision;
}

}  // namespace telegrad
