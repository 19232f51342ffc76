#pragma once

#include <cstddef>

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

// This block's of `size` items; it begins at a multiple of kPartStep.
__device__ inline Part PartOf(size_t size) {
  const size_t steps = (size + kPartStep - 1) / kPartStep;
  const size_t each = (steps + gridDim.x - 1) / gridDim.x * kPartStep;
  const size_t begin = blockIdx.x * each;
  return {begin < size ? begin : size,
          begin + each < size ? begin + each : size};
}

inline unsigned NumParts(size_t size) {
  const size_t steps = (size + kPartStep - 1) / kPartStep;
  return static_cast<unsigned>(steps < 1                  ? 1
                               : steps < kSparseListParts ? steps
                                                          : kSparseListParts);
}

// The sum of `parts` before this block's; `total` of all.
__device__ inline Word PartsBefore(const Word* parts, Word (&warp_sums)[kWarps],
                                   Word* total) {
  Word own_before = 0;
  Word own = 0;
  for (unsigned p = threadIdx.x; p < gridDim.x; p += kThreads) {
    own += parts[p];
    if (p < blockIdx.x) own_before += parts[p];
  }
  Word before = 0;
  CountsBefore(own_before, warp_sums, &before);
  __syncthreads();
  CountsBefore(own, warp_sums, total);
  return before;
}

}  // namespace telegrad::kernels::cuda
