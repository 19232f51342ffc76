#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/message.h"
#include "kvstore/collective/schedules.h"

namespace telegrad::collective {

// What `operation` has, small data's first.
std::vector<CollectiveAlgorithm> AlgorithmsOf(Operation operation);

// The algorithm that `operation` runs on `bytes` (of one rank's contribution
// to each other; of all data for allreduce and broadcast), given what was
// asked for. InvalidArgument names those that the operation has.
absl::StatusOr<CollectiveAlgorithm> Choose(Operation operation,
                                           CollectiveAlgorithm asked,
                                           size_t bytes,
                                           const GroupOptions& options);

// Predicted seconds of an allreduce of `bytes` by one of its algorithms.
double AllreduceSeconds(CollectiveAlgorithm algorithm, size_t bytes,
                        const GroupOptions& options);
// How two levels go between hosts.
Across ChooseAcross(size_t bytes, const GroupOptions& options);

}  // namespace telegrad::collective
