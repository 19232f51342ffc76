#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "kvstore/auto_decision.h"
#include "kvstore/kvstore.h"

namespace telegrad {

// What this worker saw: medians of the samples (at least one), and speeds.
Observation Observe(std::span<const StepTimes> samples,
                    std::span<const CodecFigures> codecs,
                    std::span<const CodecFigures> given_codecs,
                    double reduce_elems_per_s);

// The slowest of what all workers saw; all get the same. Errors are the
// store's, or InvalidArgument for what a worker sent.
absl::StatusOr<Observation> GatherObservation(KVStore& store, Observation mine);

}  // namespace telegrad
