#include "kvstore/automatic/observation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/median.h"
#include "base/status_macros.h"
#include "kvstore/gather_numbers.h"

namespace telegrad {
namespace {

constexpr double kCodecSpread = 0.1;  // between runs of one loop

// The numbers, in the order in which they travel to the other workers.
std::vector<SlowestNumber> Numbers(Observation& seen) {
  std::vector<SlowestNumber> numbers = {{&seen.median.step},
                                        {&seen.median.exchange},
                                        {&seen.median.wait},
                                        {&seen.exchange_spread},
                                        {&seen.reduce_elems_per_s, false}};
  for (auto* codecs : {&seen.codecs, &seen.given_codecs}) {
    for (CodecFigures& codec : *codecs) AppendNumbers(codec, &numbers);
  }
  return numbers;
}

}  // namespace

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

Observation Observe(std::span<const StepTimes> samples,
                    std::span<const CodecFigures> codecs,
                    std::span<const CodecFigures> given_codecs,
                    double reduce_elems_per_s) {
  Observation seen{.median = MedianTimes(samples),
                   .codecs = {codecs.begin(), codecs.end()},
                   .given_codecs = {given_codecs.begin(), given_codecs.end()},
                   .reduce_elems_per_s = reduce_elems_per_s};
  if (seen.median.exchange > 0) {
    const double least =
        std::ranges::min(samples, {}, &StepTimes::exchange).exchange;
    seen.exchange_spread =
        (seen.median.exchange - least) / seen.median.exchange;
  }
  return seen;
}

absl::StatusOr<Observation> GatherObservation(KVStore& store,
                                              Observation mine) {
  RETURN_IF_ERROR(GatherSlowest(store, "auto", Numbers(mine)));
  // Spreads are this worker's: all must reckon with the same.
  for (auto* codecs : {&mine.codecs, &mine.given_codecs}) {
    for (CodecFigures& codec : *codecs) {
      for (const auto each : kCodecSpeeds) (codec.*each).spread = kCodecSpread;
      codec.call_s.spread = kCodecSpread;
    }
  }
  return mine;
}

}  // namespace telegrad
