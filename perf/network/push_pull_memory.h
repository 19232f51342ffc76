#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace telegrad::perf {

// What decides how much memory pushpull takes where all ranks are on one host.
struct PushPullSizes {
  int workers = 0;
  size_t all_elems = 0;  // elements of all tensors
  // Elements that are pushed and pulled together.
  size_t largest_batch_elems = 0;
  size_t largest_tensor_elems = 0;
  bool compresses = true;
  bool checks = false;
  bool replays = false;  // the check repeats what the codec does
};

// An estimate that counts arrays of the size of tensors.
uint64_t MemoryBytes(const PushPullSizes& sizes);

// Memory that processes here can have: what the kernel says is available, and
// the limit of its control group. Nothing: the kernel does not say.
std::optional<uint64_t> AvailableMemoryBytes();

// ResourceExhausted with exit code kResourceLimit where `sizes` need more than
// `available_bytes`.
absl::Status CheckMemory(const PushPullSizes& sizes, uint64_t available_bytes);

}  // namespace telegrad::perf
