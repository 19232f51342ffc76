#pragma once

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kernels/dispatch.h"

namespace telegrad {

// The kernels for `device`; Unimplemented with the probe's reason when there
// are none.
absl::StatusOr<const kernels::KernelTable*> KernelsFor(Device device);

}  // namespace telegrad
