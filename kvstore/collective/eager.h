#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kvstore/collective/mesh.h"
#include "kvstore/collective/schedules.h"

// Collectives of small pieces, which go without asking and are copied on the
// way: fewest messages one after the other. Pieces are at most kMaxEagerBytes;
// `piece` counts those of one collective, from 0. Errors are for Mesh::Fail.
namespace telegrad::collective {

// All ranks have come when it returns.
absl::Status Disseminate(Mesh& mesh);

// The lower rank's operand is the left one, so all get the same bits.
absl::Status RecursiveDoubling(Mesh& mesh, uint32_t piece, Dtype type,
                               ReduceOp op, std::byte* data, size_t count);

// By a binomial tree. Ranks announce themselves to their parents, so that two
// that wait for each other hear of it, and no root runs ahead of its children.
absl::Status BinomialBroadcast(Mesh& mesh, uint32_t piece, std::byte* data,
                               size_t bytes, int root);

// `out` holds this rank's block already.
absl::Status DirectAllgather(Mesh& mesh, std::byte* out, const Blocks& blocks);

// In log2 n messages of ever more blocks (Bruck et al. 1997); `out` holds this
// rank's block already. All blocks together are at most kMaxEagerBytes.
absl::Status BruckAllgather(Mesh& mesh, std::byte* out, const Blocks& blocks);

// Block i of `in` to rank i; sums in the order of ranks.
absl::Status DirectReduceScatter(Mesh& mesh, Dtype type, ReduceOp op,
                                 const std::byte* in, std::byte* out,
                                 const Blocks& blocks);

// `out` holds this rank's own block already.
absl::Status DirectAlltoall(Mesh& mesh, const std::byte* in, std::byte* out,
                            size_t block_bytes);

// For alltoallv ranks compare the sizes of their blocks, and those of at most
// `most` bytes go along. Of the others are what is left in `sends` and
// `receives`; without `most` all.
absl::Status SwapBlocks(Mesh& mesh, const std::byte* in, Blocks* sends,
                        std::byte* out, Blocks* receives,
                        std::optional<size_t> most);

}  // namespace telegrad::collective
