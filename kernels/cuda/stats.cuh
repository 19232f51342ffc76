#pragma once

#include "kernels/cuda/launch.h"

// What blocks of threads have seen.
namespace telegrad::kernels::cuda {

constexpr unsigned kMostWarps = 1024 / kWarp;

// One thread's counts, where 32 bits suffice: fewer registers.
struct Tally {
  uint32_t num_nonzero = 0;
  uint32_t num_nonfinite = 0;
  uint64_t first_nonfinite = kNoIndex;
};
struct WideTally {
  uint64_t num_nonzero = 0;
  uint64_t num_nonfinite = 0;
  uint64_t first_nonfinite = kNoIndex;
};

// Residual plus gradient of element i, by the rule for what is not finite.
template <bool kZero, class Counts>
__device__ inline float Value(float residual, float grad, size_t i,
                              Counts& counts) {
  const float v = residual + grad;
  if (!kZero || IsFinite(v)) return v;
  ++counts.num_nonfinite;
  if (i < counts.first_nonfinite) counts.first_nonfinite = i;
  return IsFinite(residual) ? residual + 0.0f : 0.0f;
}

// The block's, for its first thread. All its threads, of whole warps, take
// part.
template <class T>
__device__ inline WideTally BlockTally(const T& own) {
  __shared__ unsigned long long nonzero[kMostWarps];
  __shared__ unsigned long long nonfinite[kMostWarps];
  __shared__ unsigned long long first[kMostWarps];
  const unsigned warp = threadIdx.x / kWarp;
  WideTally tally = {WarpSum(own.num_nonzero), 0, own.first_nonfinite};
  if (__any_sync(0xFFFFFFFFu, own.num_nonfinite != 0)) {
    tally.num_nonfinite = WarpSum(own.num_nonfinite);
    for (unsigned step = kWarp / 2; step > 0; step /= 2) {
      const uint64_t other =
          __shfl_down_sync(0xFFFFFFFFu, tally.first_nonfinite, step);
      if (other < tally.first_nonfinite) tally.first_nonfinite = other;
    }
  }
  if (threadIdx.x % kWarp == 0) {
    nonzero[warp] = tally.num_nonzero;
    nonfinite[warp] = tally.num_nonfinite;
    first[warp] = tally.first_nonfinite;
  }
  __syncthreads();
  if (threadIdx.x != 0) return {};
    // Not unrolled: the registers would be the whole kernel's.
#pragma unroll 1
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) {
    tally.num_nonzero += nonzero[w];
    tally.num_nonfinite += nonfinite[w];
    if (first[w] < tally.first_nonfinite) tally.first_nonfinite = first[w];
  }
  return tally;
}

// Adds one thread's counts to `stats`: one atomic a block and count, none where
// a block has nothing.
template <class T>
__device__ inline void AddStats(const T& own, EncodeStats* stats) {
  using Word = unsigned long long;
  const WideTally tally = BlockTally(own);
  if (tally.num_nonzero != 0) {
    atomicAdd(reinterpret_cast<Word*>(&stats->num_nonzero),
              static_cast<Word>(tally.num_nonzero));
  }
  if (tally.num_nonfinite == 0) return;
  atomicAdd(reinterpret_cast<Word*>(&stats->num_nonfinite),
            static_cast<Word>(tally.num_nonfinite));
  atomicMin(reinterpret_cast<Word*>(&stats->first_nonfinite),
            static_cast<Word>(tally.first_nonfinite));
}

}  // namespace telegrad::kernels::cuda
