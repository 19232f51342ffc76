#pragma once

#include <optional>

#include "absl/status/status.h"
#include "kvstore/job/launch/placement.h"
#include "trainer/flags/options.h"

namespace telegrad {

// What cannot work is found before any process is started; each error is
// InvalidArgument or NotFound and names the flag and the way out; that of a
// secret carries its exit code.
// Names of transports, networks and data, files, and the folder of results,
// which is made. `placement`: this process's, where a launcher gave one.
absl::Status CheckInputs(const TrainOptions& options,
                         const std::optional<Placement>& placement);

}  // namespace telegrad
