#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/collective/message.h"

// What all backends refuse, with InvalidArgument.
namespace telegrad::collective {

// `blocks` times `count` elements.
absl::Status CheckMemory(const void* memory, size_t count, size_t blocks,
                         Dtype type);
absl::Status CheckRoot(int root, int world_size);
// What ranks compare of an allgatherv.
absl::StatusOr<Signature> AllgathervOf(std::span<const size_t> counts,
                                       int world_size, Dtype type);

}  // namespace telegrad::collective
