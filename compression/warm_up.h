#pragma once

#include "absl/status/status.h"
#include "compression/codec.h"

namespace telegrad {

// Runs each variant of the codec's kernels once, and those that go with any
// codec, on a few elements of its own, so that no step loads them: a GPU's
// driver loads a kernel when it is used first. Once for each codec, options and
// device of the process. Internal: what the device says.
absl::Status WarmUp(const Codec& codec, const CodecOptions& options,
                    Device device);

}  // namespace telegrad
