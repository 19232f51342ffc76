#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/collective/message.h"

// What all backends refuse, with InvalidArgument.
namespace telegrad::collective {

// `blocks` times `count` elements.
absl::Status CheckMemory(const void* memory, size_t count, size_t blocks,
                         Dtype type);
absl::Status CheckRoot(int root, int world_size);
// What ranks compare of an `operation` to which all give the same counts.
Signature WithCounts(Operation operation, std::span<const size_t> counts,
                     Dtype type);
// A rank's block of an alltoallv for itself.
absl::Status CheckOwnBlock(size_t sent, size_t received);
// The bytes of each rank's block of `memory`.
absl::StatusOr<std::vector<size_t>> BytesOf(const void* memory,
                                            std::span<const size_t> counts,
                                            int world_size, Dtype type);

}  // namespace telegrad::collective
