#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "topology/calibration.h"

namespace telegrad {

using Work = std::function<absl::Status()>;

// Seconds of one run: median, and how much less the least is, relative.
struct Timing {
  double seconds = 0;
  double spread = 0;
};

Timing TimingOf(const std::vector<double>& seconds);  // 0 without seconds

// Times several works in turns, so that what else the machine does falls on all
// alike: `repeats` runs of each, or as many as fit the budget, but then at
// least three. The first error ends all.
absl::StatusOr<std::vector<Timing>> TimeInTurns(const std::vector<Work>& works,
                                                int repeats, Duration budget);
absl::StatusOr<Timing> Time(const Work& work, int repeats, Duration budget);

// What was measured: seconds, and units/s of a run on so many.
Figure Seconds(const Timing& timing, std::string reason);
Figure Rate(double units, const Timing& timing);

}  // namespace telegrad
