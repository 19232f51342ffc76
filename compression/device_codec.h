#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compression/codec.h"

namespace telegrad {

// A codec prepared for a GPU: whatever it queues, it queues with that device as
// the thread's current one, and what went wrong with a launch is its call's
// error, with the device's name and CUDA's text.
std::unique_ptr<PreparedCodec> OnDevice(std::unique_ptr<PreparedCodec> codec,
                                        Device device);

// Runs each of the codec's kernels once, on a few elements of its own, so that
// the first step does not load them: a GPU's driver loads a kernel when it is
// used first. Once for each codec, options and device of the process. Internal:
// what the device says.
absl::Status WarmUp(const Codec& codec, const CodecOptions& options,
                    Device device);

}  // namespace telegrad
