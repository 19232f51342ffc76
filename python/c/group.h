#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"
#include "python/telegrad.h"

namespace telegrad::c {

// Options of a group of the job's workers, after the join.
absl::StatusOr<GroupOptions> GroupOptionsOf(telegrad_job* job);
// Such a group, which all make in the same order.
absl::StatusOr<std::unique_ptr<Group>> ConnectGroup(
    telegrad_job* job, const GroupOptions& options);

}  // namespace telegrad::c
