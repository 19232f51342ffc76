#pragma once

#include <cstddef>

#include "kernels/cuda/launch.h"

// Lists written in one pass: a block takes a tile, counts what it will write,
// learns from the tiles before it where that begins (decoupled look-back:
// Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled
// Look-back", 2016) and writes it. Tiles are handed out in order, so that those
// before are always done or under way.
namespace telegrad::kernels::cuda {

using Word = unsigned long long;

constexpr unsigned kWarps = kThreads / kWarp;

// What a tile says of itself: in the upper two bits, how much it knows.
constexpr Word kOwnCount = Word{1} << 62;  // the count of this tile
// The count of all tiles up to this one.
constexpr Word kCountSoFar = Word{2} << 62;
constexpr Word kCountMask = kOwnCount - 1;

// The next tile, unused, and a word per tile, all 0 at first.
struct TileScratch {
  Word next_tile;
  Word unused;
  Word tiles[1];
};

__device__ inline Word Peek(const Word* at) {
  return *static_cast<const volatile Word*>(at);
}
__device__ inline void Tell(Word value, Word* at) {
  *static_cast<volatile Word*>(at) = value;
}

// The tile that a block does next.
__device__ inline size_t NextTile(TileScratch* scratch, Word& shared_tile) {
  // The barrier keeps a fast warp from the shared words of the tile before,
  // too.
  __syncthreads();
  if (threadIdx.x == 0) shared_tile = atomicAdd(&scratch->next_tile, Word{1});
  __syncthreads();
  return shared_tile;
}

// The counts of all tiles before `tile`; by a whole warp, 32 tiles at a time.
__device__ inline Word CountBefore(size_t tile, const Word* tiles) {
  const unsigned lane = threadIdx.x % kWarp;
  Word total = 0;
  for (size_t end = tile; end > 0; end = end > kWarp ? end - kWarp : 0) {
    Word word = kCountSoFar;  // before the first: 0
    if (lane < end) {
      do {
        word = Peek(tiles + (end - 1 - lane));
      } while (word < kOwnCount);
    }
    const unsigned knows_all = __ballot_sync(0xFFFFFFFFu, word >= kCountSoFar);
    // Lanes nearer to the tile than the first that knows all, and that one.
    const unsigned last = knows_all == 0 ? kWarp - 1 : __ffs(knows_all) - 1;
    const Word part = lane <= last ? word & kCountMask : 0;
    total += __shfl_sync(0xFFFFFFFFu, WarpSum(part), 0);
    if (knows_all != 0) break;
  }
  return total;
}

// Tells the others the tile's count; what those before it have, to all threads.
__device__ inline Word CountInTurn(size_t tile, Word count, Word* tiles,
                                   Word& shared_before) {
  if (threadIdx.x < kWarp) {
    if (threadIdx.x == 0) Tell(kOwnCount | count, tiles + tile);
    const Word so_far = CountBefore(tile, tiles);
    if (threadIdx.x == 0) {
      Tell(kCountSoFar | (so_far + count), tiles + tile);
      shared_before = so_far;
    }
  }
  __syncthreads();
  return shared_before;
}

// The sums of `counts` over the threads before this one; `total` of all.
__device__ inline Word CountsBefore(Word counts, Word (&warp_sums)[kWarps],
                                    Word* total) {
  const unsigned lane = threadIdx.x % kWarp;
  Word sum = counts;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const Word other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == kWarp - 1) warp_sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  Word before = 0;
  *total = 0;
#pragma unroll
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w < threadIdx.x / kWarp) before += warp_sums[w];
    *total += warp_sums[w];
  }
  return before + sum - counts;
}

}  // namespace telegrad::kernels::cuda
