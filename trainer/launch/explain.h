#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kvstore/job/launch/placement.h"
#include "trainer/flags/options.h"

namespace telegrad {

// --explain: what a run of each setting will do, before anything is started.
// Per tensor the codec, its reason and bytes; per step bytes, memory and the
// time that is expected of it: computing is measured in this process on a part
// of a batch, codecs likewise, and the exchange is the planner's prediction.
// Errors as of CheckInputs, and of a codec that cannot be measured.
absl::StatusOr<std::string> ExplainRuns(
    const TrainOptions& options, const std::optional<Placement>& placement);

}  // namespace telegrad
