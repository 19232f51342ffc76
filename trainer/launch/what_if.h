#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/flags/options.h"
#include "trainer/report/results.h"

namespace telegrad {

// What the simulator says of finished runs on other links, and on the one that
// was emulated, beside what was measured there. Computing is the measured step
// less what workers waited, codecs and cores are measured here. A run without
// servers has no rows; one that cannot be simulated is a row that says why.
absl::StatusOr<std::vector<WhatIfRow>> WhatIf(
    const TrainOptions& options, const std::vector<RunSummary>& runs);

}  // namespace telegrad
