#include "kvstore/tuning/timing.h"

#include <algorithm>
#include <utility>

#include "base/median.h"
#include "base/status_macros.h"

namespace telegrad {

Timing TimingOf(const std::vector<double>& seconds) {
  const double median = Median(seconds);
  if (median <= 0) return {};
  const double least = *std::min_element(seconds.begin(), seconds.end());
  return {median, (median - least) / median};
}

absl::StatusOr<std::vector<Timing>> TimeInTurns(const std::vector<Work>& works,
                                                int repeats, Duration budget) {
  constexpr int kLeastRepeats = 3;
  std::vector<std::vector<double>> seconds(works.size());
  const TimePoint end = Clock::now() + budget;
  // The first run touches memory and makes state.
  for (const Work& work : works) RETURN_IF_ERROR(work());
  for (int i = 0; i < repeats && (i < kLeastRepeats || Clock::now() < end);
       ++i) {
    for (size_t w = 0; w < works.size(); ++w) {
      const TimePoint start = Clock::now();
      RETURN_IF_ERROR(works[w]());
      seconds[w].push_back(SecondsSince(start));
    }
  }
  std::vector<Timing> timings;
  for (const std::vector<double>& each : seconds) {
    timings.push_back(TimingOf(each));
  }
  return timings;
}

absl::StatusOr<Timing> Time(const Work& work, int repeats, Duration budget) {
  ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                   TimeInTurns({work}, repeats, budget));
  return timings[0];
}

Figure Seconds(const Timing& timing, std::string reason) {
  return {.value = timing.seconds,
          .spread = std::min(timing.spread, 0.5),
          .confidence = Confidence::kMeasured,
          .reason = std::move(reason)};
}

Figure Rate(double units, const Timing& timing) {
  Figure figure = Seconds(timing, "measured on this machine");
  figure.value = units / std::max(timing.seconds, 1e-9);
  return figure;
}

}  // namespace telegrad
