#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvstore/collective/bulk.h"

// The schedules of large collectives. Blocks and pieces are cut at multiples
// of the type's size. Thakur, Rabenseifner, Gropp, Optimization of Collective
// Communication Operations in MPICH, 2005; Patarasuk, Yuan, Bandwidth Optimal
// All-reduce Algorithms for Clusters of Workstations, 2009.
namespace telegrad::collective {

// One of the ranks that take part.
struct Place {
  int rank = 0;
  int world_size = 1;
  size_t chunk_bytes = size_t{256} << 10;
  std::vector<int> ranks = {};  // their ranks in the group; empty: all of it

  int In(int place) const {
    return ranks.empty() ? place : ranks[static_cast<size_t>(place)];
  }
};

// Parts of a memory, in bytes.
struct Block {
  size_t offset = 0;
  size_t bytes = 0;
};
using Blocks = std::vector<Block>;

// What an allreduce does to `data` [count].
struct Reduction {
  Dtype type = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::byte* data = nullptr;
  size_t count = 0;
};

// `count` elements in `parts` blocks, the first ones an element larger.
Blocks Divide(size_t count, size_t elem_bytes, int parts);
// Blocks of these sizes without gaps.
Blocks Concatenate(const std::vector<size_t>& bytes);

// Block b of `data` is summed from rank b on round the ring, then goes round
// once more.
Schedule RingAllreduce(const Place& place, const Reduction& reduction);
// Neighbours, then neighbours of these, swap halves, quarters and so on and sum
// what they get to what they have; then back. Of the ranks that are more than a
// power of two the first give theirs to their neighbours before, and get the
// sum after.
Schedule HalvingDoubling(const Place& place, const Reduction& reduction);
// A binary tree, the children of i are 2i + 1 and 2i + 2, which sums: own,
// left, right. Rank 0 gives the sum back by the same way.
Schedule TreeAllreduce(const Place& place, const Reduction& reduction);
Schedule TreeBroadcast(const Place& place, std::byte* data, size_t bytes,
                       int root);

// How ranks of one host sum their parts with those of others.
enum class Across : uint8_t { kRing, kHalvingDoubling, kTree };
// The ranks of each host, in order, sum round a ring, so that each has a part;
// those with the same part sum it `across` hosts; each goes round its host. All
// hosts have as many parts as the smallest of them has ranks.
Schedule TwoLevelAllreduce(const Place& place, const Reduction& reduction,
                           std::span<const int> host_of, Across across);
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
