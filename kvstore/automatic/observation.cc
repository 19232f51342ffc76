#include "kvstore/automatic/observation.h"

#include <algorithm>
#include <vector>

#include "base/median.h"
#include "base/status_macros.h"
#include "kvstore/gather_numbers.h"

namespace telegrad {
namespace {

constexpr double kCodecSpread = 0.1;  // between runs of one loop

constexpr Figure CodecFigures::*kSpeeds[] = {
    &CodecFigures::encode, &CodecFigures::decode, &CodecFigures::decode_add,
    &CodecFigures::sum, &CodecFigures::reply_encode};

// A number of an observation, and whether the slowest worker's is the largest
// (a time) or the smallest (a speed).
struct Entry {
  double* value = nullptr;
  bool is_time = true;
};

// The numbers, in the order in which they travel to the other workers.
std::vector<Entry> Entries(Observation& seen) {
  std::vector<Entry> entries = {{&seen.median.step},
                                {&seen.median.exchange},
                                {&seen.median.wait},
                                {&seen.exchange_spread},
                                {&seen.reduce_elems_per_s, false}};
  for (CodecFigures& codec : seen.codecs) {
    entries.push_back({&codec.call_s.value});
    for (const auto speed : kSpeeds) {
      entries.push_back({&(codec.*speed).value, false});
    }
  }
  return entries;
}

}  // namespace

Observation Observe(std::span<const StepTimes> samples,
                    std::span<const CodecFigures> codecs,
                    double reduce_elems_per_s) {
  const auto column = [&samples](double StepTimes::*time) {
    std::vector<double> values;
    for (const StepTimes& each : samples) values.push_back(each.*time);
    return values;
  };
  const std::vector<double> exchanges = column(&StepTimes::exchange);
  Observation seen{.median = {.step = Median(column(&StepTimes::step)),
                              .exchange = Median(exchanges),
                              .wait = Median(column(&StepTimes::wait))},
                   .codecs = {codecs.begin(), codecs.end()},
                   .reduce_elems_per_s = reduce_elems_per_s};
  if (seen.median.exchange > 0) {
    const double least = *std::min_element(exchanges.begin(), exchanges.end());
    seen.exchange_spread =
        (seen.median.exchange - least) / seen.median.exchange;
  }
  return seen;
}

absl::StatusOr<Observation> GatherObservation(KVStore& store,
                                              Observation mine) {
  const std::vector<Entry> entries = Entries(mine);
  std::vector<double> numbers;
  for (const Entry& entry : entries) numbers.push_back(*entry.value);
  ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all,
                   GatherNumbers(store, "auto", numbers));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (size_t i = 0; i < entries.size(); ++i) {
      double& worst = *entries[i].value;
      // The first replaces this worker's own, which is not rounded.
      worst = rank == 0            ? all[rank][i]
              : entries[i].is_time ? std::max(worst, all[rank][i])
                                   : std::min(worst, all[rank][i]);
    }
  }
  // Spreads are this worker's: all must reckon with the same.
  for (CodecFigures& codec : mine.codecs) {
    for (const auto speed : kSpeeds) (codec.*speed).spread = kCodecSpread;
    codec.call_s.spread = kCodecSpread;
  }
  return mine;
}

}  // namespace telegrad
