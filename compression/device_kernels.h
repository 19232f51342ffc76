#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kernels/dispatch.h"

namespace telegrad {

// What every codec's Prepare begins with: the kernels for `device`.
// InvalidArgument for a tensor without elements; Unimplemented with the probe's
// reason when there are no kernels.
absl::StatusOr<const kernels::KernelTable*> KernelsFor(size_t num_elems,
                                                       Device device);

}  // namespace telegrad
