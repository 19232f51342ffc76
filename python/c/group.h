#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"
#include "python/telegrad.h"

namespace telegrad::c {

// A group of the job's workers, which all make in the same order after the
// join. `sends` as in GroupOptions; `made_by` (may be null) gets these.
absl::StatusOr<std::unique_ptr<Group>> ConnectGroup(
    telegrad_job* job, bool sends, GroupOptions* made_by = nullptr);

}  // namespace telegrad::c
