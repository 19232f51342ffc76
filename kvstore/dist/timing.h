#pragma once

#include <functional>
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

// Of several, in turns, so that what else the machine does falls on all alike:
// so many runs of each, or fewer, at least three, if the budget is over. What
// fails ends all.
absl::StatusOr<std::vector<Timing>> TimeInTurns(const std::vector<Work>& works,
                                                int repeats, Duration budget);
absl::StatusOr<Timing> Time(const Work& work, int repeats, Duration budget);

// Units/s of a run on so many.
Figure Rate(double units, const Timing& timing);

}  // namespace telegrad
