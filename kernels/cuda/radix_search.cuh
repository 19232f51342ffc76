#pragma once

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/compaction.cuh"
#include "kernels/select.h"

// The k-th largest magnitude of many, 12 bits at a time: each kernel counts how
// often a digit occurs, and its last block narrows down what is looked for.
namespace telegrad::kernels::cuda {

constexpr uint32_t kBins = 1u << kSelectBinBits;
constexpr uint32_t kBinsPerThread = kBins / kThreads;
constexpr uint32_t kMagnitudeBits = 31;

// Magnitudes [from, from + 2^width) have, as bits, the one that is looked for;
// it is the rank-th largest of those.
struct Window {
  uint32_t from;
  uint32_t width;
  Word rank;
};

// What is kept between kernels: all 0 at first.
struct State {
  Window window;
  unsigned num_done;   // blocks of a kernel
  uint32_t not_least;  // bits of a sample's smallest, inverted
  uint32_t most;
  uint32_t unused;
  uint32_t counts[kBins];
};
static_assert(sizeof(State) + sizeof(TileScratch) <= kSelectStateBytes &&
                  sizeof(State) % 8 == 0,
              "room for the state and the first tile");
__device__ inline uint32_t Peek(const uint32_t* at) {
  return *static_cast<const volatile uint32_t*>(at);
}

__device__ inline uint32_t BitWidth(uint32_t bits) { return 32 - __clz(bits); }

struct Shared {
  uint32_t counts[kBins];
  Word warp_sums[kWarps];
  unsigned is_last;
};

// Whether all other blocks have added what they have.
__device__ inline bool IsLastBlock(const Share& share, State* state,
                                   Shared& shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.is_last =
        atomicAdd(&state->num_done, 1u) + 1 == share.num_blocks ? 1 : 0;
  }
  __syncthreads();
  __threadfence();
  return shared.is_last != 0;
}

// Narrows the window to the bin that has its rank-th; clears the counts.
__device__ inline void Narrow(Window window, uint32_t shift, State* state,
                              Shared& shared) {
  // Threads have bins from the highest downwards.
  const uint32_t end = kBins - threadIdx.x * kBinsPerThread;
  Word own = 0;
  for (uint32_t b = end - kBinsPerThread; b < end; ++b) {
    own += Peek(state->counts + b);
  }
  Word total = 0;
  Word above = CountsBefore(own, shared.warp_sums, &total);
  if (above < window.rank && window.rank <= above + own) {
    uint32_t bin = end - 1;
    for (; above + Peek(state->counts + bin) < window.rank; --bin) {
      above += Peek(state->counts + bin);
    }
    state->window = {window.from + (bin << shift), shift, window.rank - above};
  }
  for (uint32_t b = end - kBinsPerThread; b < end; ++b) state->counts[b] = 0;
  if (threadIdx.x == 0) state->num_done = 0;
}

// One digit of a search by radix, over bits_at(0) to bits_at(size - 1). Returns
// whether this block was the last, which has narrowed the state's window.
template <typename BitsAt>
__device__ inline bool RadixPass(BitsAt bits_at, size_t size, Window window,
                                 const Share& share, State* state,
                                 Shared& shared) {
  const uint32_t shift =
      window.width > kSelectBinBits ? window.width - kSelectBinBits : 0;
  for (uint32_t b = threadIdx.x; b < kBins; b += kThreads) shared.counts[b] = 0;
  __syncthreads();
  for (size_t i = share.thread(); i < size; i += share.num_threads()) {
    const uint32_t above = bits_at(i) - window.from;
    if (above >> window.width == 0)
      atomicAdd(shared.counts + (above >> shift), 1u);
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < kBins; b += kThreads) {
    if (shared.counts[b] != 0) atomicAdd(state->counts + b, shared.counts[b]);
  }
  if (!IsLastBlock(share, state, shared)) return false;
  Narrow(window, shift, state, shared);
  return true;
}

}  // namespace telegrad::kernels::cuda
