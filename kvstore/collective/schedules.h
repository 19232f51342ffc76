#pragma once

#include <cstddef>
#include <vector>

#include "kvstore/collective/bulk.h"

// The schedules of large collectives. Blocks and pieces are cut at multiples
// of the type's size. Thakur, Rabenseifner, Gropp, Optimization of Collective
// Communication Operations in MPICH, 2005; Patarasuk, Yuan, Bandwidth Optimal
// All-reduce Algorithms for Clusters of Workstations, 2009.
namespace telegrad::collective {

struct Place {
  int rank = 0;
  int world_size = 1;
  size_t chunk_bytes = size_t{256} << 10;
};

// Parts of a memory, in bytes.
struct Block {
  size_t offset = 0;
  size_t bytes = 0;
};
using Blocks = std::vector<Block>;

// `count` elements in `parts` blocks, the first ones an element larger.
Blocks Divide(size_t count, size_t elem_bytes, int parts);
// Blocks of these sizes without gaps.
Blocks Concatenate(const std::vector<size_t>& bytes);

// Block b of `data` is summed from rank b on round the ring, then goes round
// once more.
Schedule RingAllreduce(const Place& place, Dtype type, ReduceOp op,
                       std::byte* data, const Blocks& blocks);
// Block b of `in` is summed from rank b + 1 on and ends at rank b. `out` holds
// block `rank` of `in` already.
Schedule RingReduceScatter(const Place& place, Dtype type, ReduceOp op,
                           const std::byte* in, std::byte* out,
                           const Blocks& blocks);
// `out` holds this rank's block already.
Schedule RingAllgather(const Place& place, std::byte* out,
                       const Blocks& blocks);
Schedule DirectAllgather(const Place& place, std::byte* out,
                         const Blocks& blocks);
Schedule ChainBroadcast(const Place& place, std::byte* data, size_t bytes,
                        int root);
// This rank's own block is in `out` already.
Schedule PairwiseAlltoall(const Place& place, const std::byte* in,
                          const Blocks& sends, std::byte* out,
                          const Blocks& receives);

}  // namespace telegrad::collective
