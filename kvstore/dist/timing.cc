#include "kvstore/dist/timing.h"

#include <algorithm>

#include "base/status_macros.h"

namespace telegrad {

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
  for (std::vector<double>& each : seconds) {
    std::sort(each.begin(), each.end());
    const double median = each[each.size() / 2];
    timings.push_back(
        {median, median > 0 ? (median - each.front()) / median : 0});
  }
  return timings;
}

absl::StatusOr<Timing> Time(const Work& work, int repeats, Duration budget) {
  ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                   TimeInTurns({work}, repeats, budget));
  return timings[0];
}

Figure Rate(double units, const Timing& timing) {
  return {.value = units / std::max(timing.seconds, 1e-9),
          .spread = std::min(timing.spread, 0.5),
          .confidence = Confidence::kMeasured,
          .reason = "measured on this machine"};
}

}  // namespace telegrad
