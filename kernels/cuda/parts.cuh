#pragma once

#include <cstddef>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/compaction.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/sparse_list.h"

// Lists in parts, one for each block, by two kernels of the same grid: the
// first counts what each part has, the second adds what those before it have.
namespace telegrad::kernels::cuda {

// A thread takes so many items at a time.
constexpr unsigned kPartItems = 4;
constexpr size_t kPartStep = kPartItems * kThreads;

struct Part {
  size_t begin;
  size_t end;
};

// A block's of `size` items; it begins at a multiple of kPartStep.
__device__ inline Part PartOf(size_t size, const Share& share) {
  const size_t steps = (size + kPartStep - 1) / kPartStep;
  const size_t each =
      (steps + share.num_blocks - 1) / share.num_blocks * kPartStep;
  const size_t begin = share.block * each;
  return {begin < size ? begin : size,
          begin + each < size ? begin + each : size};
}

inline unsigned NumParts(size_t size) {
  const size_t steps = (size + kPartStep - 1) / kPartStep;
  return static_cast<unsigned>(steps < 1                  ? 1
                               : steps < kSparseListParts ? steps
                                                          : kSparseListParts);
}

// The sum of `parts` before the block's; `total` of all.
__device__ inline Word PartsBefore(const Word* parts, const Share& share,
                                   Word (&warp_sums)[kWarps], Word* total) {
  Word own_before = 0;
  Word own = 0;
  for (unsigned p = threadIdx.x; p < share.num_blocks; p += kThreads) {
    own += parts[p];
    if (p < share.block) own_before += parts[p];
  }
  Word before = 0;
  CountsBefore(own_before, warp_sums, &before);
  __syncthreads();
  CountsBefore(own, warp_sums, total);
  return before;
}

}  // namespace telegrad::kernels::cuda
