#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/message.h"

namespace telegrad::collective {

// The algorithm that `operation` runs on `bytes` (of one rank's contribution
// to each other; of all data for allreduce and broadcast), given what was
// asked for. InvalidArgument names those that the operation has.
absl::StatusOr<CollectiveAlgorithm> Choose(Operation operation,
                                           CollectiveAlgorithm asked,
                                           size_t bytes,
                                           const GroupOptions& options);

}  // namespace telegrad::collective
