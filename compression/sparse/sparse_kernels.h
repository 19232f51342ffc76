#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "compression/codec.h"
#include "kernels/dispatch.h"

namespace telegrad {

// What Prepare of sparse codecs begins with: as KernelsFor; Unimplemented on a
// GPU, where no payloads are made, InvalidArgument from 2^31 elements on.
absl::StatusOr<const kernels::KernelTable*> SparseKernelsFor(
    const CodecTraits& traits, size_t num_elems, Device device);

}  // namespace telegrad
