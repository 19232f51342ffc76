#pragma once

#include "kernels/cuda/batch.cuh"

// Kernels whose body is the same for one array and for those of a batch
// (kernels/batch.h). They take a source, which says what the array is, and
// which share of it is the thread block's.
namespace telegrad::kernels::cuda {

// A block among those of its array.
struct Share {
  size_t block;
  size_t num_blocks;

  __device__ bool is_none() const { return block >= num_blocks; }
  __device__ size_t thread() const { return block * kThreads + threadIdx.x; }
  __device__ size_t num_threads() const { return num_blocks * kThreads; }
};

__device__ inline Share ShareOfGrid() { return {blockIdx.x, gridDim.x}; }

// The grid's one array.
template <class Args>
struct One {
  Args args;

  __device__ const Args& Get() const { return args; }
  __device__ Share ShareOf(size_t) const { return ShareOfGrid(); }
  __device__ void SampleBehind() const {}
};

// A share of an array of a batch among as many blocks as have a thread for each
// item, at most the array's tiles.
template <class Batch, class Span>
__device__ inline Share ShareOfTile(const Batch& batch, const Span& own,
                                    size_t items) {
  const size_t tiles =
      (own.num_elems + batch.tile_elems - 1) / batch.tile_elems;
  const size_t wanted = items < kThreads ? 1 : (items - 1) / kThreads + 1;
  return {blockIdx.x - own.first_tile, wanted < tiles ? wanted : tiles};
}

// The array that has the block's tile. Make::Of(span): the arguments.
template <class Make>
struct Each {
  EncodeBatch batch;

  __device__ const EncodeSpan& span() const {
    return batch.spans[batch.span_of_tile[blockIdx.x]];
  }
  __device__ auto Get() const { return Make::Of(span()); }
  __device__ Share ShareOf(size_t items) const {
    return ShareOfTile(batch, span(), items);
  }
  // Samples of the block's tile, in the last kernel of an encoder.
  __device__ void SampleBehind() const { SampleTile<true>(batch); }
};

}  // namespace telegrad::kernels::cuda
