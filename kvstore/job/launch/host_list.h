#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kvstore/job/launch/placement.h"

namespace telegrad {

// Where ranks meet whose launcher gives no address, in a batch system that
// tells all of them the job's hosts: the first host, and a port by the job's
// number. nullopt without such a system; InvalidArgument names a variable whose
// hosts cannot be read.
absl::StatusOr<std::optional<HostPort>> MeetingOfBatchSystem(const GetEnv& env);

}  // namespace telegrad
