#pragma once

#include "absl/status/status.h"
#include "compression/codec.h"

namespace telegrad {

// Runs each of the codec's kernels once, on a few elements of its own, so that
// the first step does not load them: a GPU's driver loads a kernel when it is
// used first. Once for each codec, options and device of the process. Internal:
// what the device says.
absl::Status WarmUp(const Codec& codec, const CodecOptions& options,
                    Device device);

}  // namespace telegrad
