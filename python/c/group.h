#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"
#include "python/telegrad.h"

namespace telegrad::c {

// A group of the job's workers, which all make in the same order after the
// join. `sends` as in GroupOptions.
absl::StatusOr<std::unique_ptr<Group>> ConnectGroup(telegrad_job* job,
                                                    bool sends);

}  // namespace telegrad::c
