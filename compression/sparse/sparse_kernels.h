#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kernels/dispatch.h"

namespace telegrad {

// What Prepare of sparse codecs begins with: as KernelsFor; InvalidArgument
// from 2^31 elements on.
absl::StatusOr<const kernels::KernelTable*> SparseKernelsFor(size_t num_elems,
                                                             Device device);

}  // namespace telegrad
