#pragma once

#include "kernels/batch.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/stats.cuh"

// Kernels of kernels/batch.h: a block takes a tile as an array of its own; the
// last block of an array sets its result.
namespace telegrad::kernels::cuda {

// Blocks of a kernel that is to have most of a multiprocessor's threads: 1536
// of 2048, or all 1024 that those before sm_80 have.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr unsigned kManyBlocks = 4;
#else
constexpr unsigned kManyBlocks = 6;
#endif

// Tells of a pointer that was itself read from memory that what it points to
// lies in the device's memory, so that loads and stores need not find out.
template <typename T>
__device__ inline T* Global(T* pointer) {
  __builtin_assume(__isGlobal(pointer));
  return pointer;
}

// What a block encodes. The arrays are whole ones.
struct Tile {
  const EncodeSpan* span;
  const void* grad;
  float* residual;
  uint8_t* codes;
  size_t begin;  // its first element in the arrays
  size_t n;      // elements
};

__device__ inline Tile TileOf(const EncodeBatch& batch) {
  Tile tile;
  tile.span = batch.spans + batch.span_of_tile[blockIdx.x];
  tile.grad = Global(tile.span->grad);
  tile.residual = Global(tile.span->residual);
  tile.codes = Global(tile.span->codes);
  tile.begin = static_cast<size_t>(blockIdx.x - tile.span->first_tile) *
               batch.tile_elems;
  const size_t left = tile.span->num_elems - tile.begin;
  tile.n = left < batch.tile_elems ? left : batch.tile_elems;
  return tile;
}

__device__ inline float GradAt(const void* grad, GradFormat format, size_t i) {
  if (format == GradFormat::kFloat32) return static_cast<const float*>(grad)[i];
  const uint32_t code = static_cast<const uint16_t*>(grad)[i];
  return format == GradFormat::kFp16 ? Fp16Format::Float(code)
                                     : Bf16Format::Float(code);
}

// Takes the tile's samples, before it is encoded or behind that, if the array
// has any. All threads of the block take part.
template <bool kBehind>
__device__ inline void SampleTile(const EncodeBatch& batch) {
  const EncodeSpan& span = batch.spans[batch.span_of_tile[blockIdx.x]];
  float* const samples = span.samples;
  if (samples == nullptr) return;
  if (kBehind) __syncthreads();  // what others have stored
  const Tile tile = TileOf(batch);
  const size_t stride = span.sample_stride;
  const size_t count = (span.num_elems + stride - 1) / stride;
  const size_t first = (tile.begin + stride - 1) / stride;
  for (size_t j = first + threadIdx.x; j * stride < tile.begin + tile.n;
       j += blockDim.x) {
    const size_t i = j * stride;
    if (!kBehind) samples[j] = GradAt(tile.grad, span.format, i);
    if (tile.residual == nullptr) continue;
    samples[(kBehind ? 2 : 1) * count + j] = tile.residual[i];
  }
  if (!kBehind) __syncthreads();
}

__device__ inline void SetResult(const EncodeSpan& span,
                                 const WideTally& tally) {
  SpanResult* const result = Global(span.result);
  result->encoded_bytes = span.encoded_bytes;
  result->stats.num_nonzero = tally.num_nonzero;
  result->stats.num_nonfinite = tally.num_nonfinite;
  result->stats.first_nonfinite = tally.first_nonfinite;
}

// What other blocks wrote, not what an L1 cache may still hold.
__device__ inline WideTally ReadTally(const EncodeStats* at) {
  const volatile EncodeStats* const stats = at;
  return {stats->num_nonzero, stats->num_nonfinite, stats->first_nonfinite};
}

// Adds the thread's tally, whose indices count from the tile's first element,
// to the array's result. All threads of the block take part.
template <class T>
__device__ inline void FinishTile(const EncodeBatch& batch, const Tile& tile,
                                  T own) {
  __shared__ bool is_last;
  if (own.num_nonfinite != 0) own.first_nonfinite += tile.begin;
  const EncodeSpan& span = *tile.span;
  const auto num_tiles = static_cast<uint32_t>(
      (span.num_elems + batch.tile_elems - 1) / batch.tile_elems);
  const WideTally of_tile = BlockTally(own);
  if (num_tiles == 1) {
    if (threadIdx.x == 0) SetResult(span, of_tile);
    return;
  }
  uint32_t* const ticket = batch.tickets + (tile.span - batch.spans);
  if (threadIdx.x == 0) {
    EncodeStats* const to = batch.tile_stats + blockIdx.x;
    to->num_nonzero = of_tile.num_nonzero;
    to->num_nonfinite = of_tile.num_nonfinite;
    to->first_nonfinite = of_tile.first_nonfinite;
    __threadfence();
    is_last = atomicAdd(ticket, 1u) == num_tiles - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  WideTally sum;
  for (uint32_t t = threadIdx.x; t < num_tiles; t += blockDim.x) {
    const WideTally each = ReadTally(batch.tile_stats + span.first_tile + t);
    sum.num_nonzero += each.num_nonzero;
    sum.num_nonfinite += each.num_nonfinite;
    if (each.first_nonfinite < sum.first_nonfinite) {
      sum.first_nonfinite = each.first_nonfinite;
    }
  }
  const WideTally all = BlockTally(sum);
  if (threadIdx.x != 0) return;
  SetResult(span, all);
  *ticket = 0;
}

// What is decoded, of any format, from some element on.
struct DecodeOut {
  uint8_t* to;
  GradFormat format;

  __device__ DecodeOut From(size_t begin) const {
    return {to + begin * (format == GradFormat::kFloat32 ? 4 : 2), format};
  }
  __device__ uint32_t Half(float value) const {
    return format == GradFormat::kFp16 ? Fp16Format::Cast(value)
                                       : Bf16Format::Cast(value);
  }
  // As Store4 does it; kVector: aligned to four elements.
  template <bool kVector>
  __device__ void Store(const float (&values)[4], size_t i, size_t n) const {
    if (format == GradFormat::kFloat32) {
      Store4<kVector>(values, i, n, reinterpret_cast<float*>(to));
      return;
    }
    uint32_t halves[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) halves[j] = Half(values[j]);
    StoreHalves<kVector>(halves, i, n, to);
  }
  __device__ void StoreOne(float value, size_t i) const {
    if (format == GradFormat::kFloat32) {
      reinterpret_cast<float*>(to)[i] = value;
    } else {
      reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(Half(value));
    }
  }
};

__device__ inline DecodeOut OutOf(float* to) {
  return {reinterpret_cast<uint8_t*>(to), GradFormat::kFloat32};
}

// Where a block decodes: as an array of its own.
struct DecodeTile {
  const DecodeSpan* span;
  const uint8_t* codes;  // the whole array's
  DecodeOut out;         // the whole array's
  size_t begin;          // its first element in the array
  size_t n;              // elements

  // Multiplied by the span's scale; what is not to change is no operand.
  __device__ float Scaled(float value) const {
    return span->scale == 1 ? value : value * span->scale;
  }
};

__device__ inline DecodeTile TileOf(const DecodeBatch& batch) {
  DecodeTile tile;
  tile.span = batch.spans + batch.span_of_tile[blockIdx.x];
  tile.codes = Global(tile.span->codes);
  tile.out = {static_cast<uint8_t*>(Global(tile.span->out)), batch.out};
  tile.begin = static_cast<size_t>(blockIdx.x - tile.span->first_tile) *
               batch.tile_elems;
  const size_t left = tile.span->num_elems - tile.begin;
  tile.n = left < batch.tile_elems ? left : batch.tile_elems;
  return tile;
}

// The block's tile becomes 0, for all its threads behind a __syncthreads().
__device__ inline void ClearTile(const DecodeBatch& batch,
                                 const DecodeTile& tile) {
  const float zero = tile.Scaled(0.0f);
  const float zeros[4] = {zero, zero, zero, zero};
  const DecodeOut out = tile.out.From(tile.begin);
  const size_t wide = batch.is_aligned ? tile.n / 4 * 4 : 0;
  for (size_t i = 4 * threadIdx.x; i < wide; i += 4 * blockDim.x) {
    out.Store<true>(zeros, i, wide);
  }
  for (size_t i = wide + threadIdx.x; i < tile.n; i += blockDim.x) {
    out.StoreOne(zero, i);
  }
}

// One of two kernels, by whether outputs are aligned.
template <typename Kernel>
void LaunchDecodes(const DecodeBatch& batch, Kernel* aligned, Kernel* other,
                   Stream stream) {
  if (batch.num_tiles == 0) return;
  auto* const kernel = batch.is_aligned ? aligned : other;
  kernel<<<batch.num_tiles, kThreads, 0, StreamOf(stream)>>>(batch);
}

// Op::Encode<kVector, kZeroNonFinite>(batch, tile, tally), Op::Counts, and how
// many blocks fit on a multiprocessor at least, Op::kBlocks.
template <class Op, bool kVector, bool kZeroNonFinite>
__global__ void __launch_bounds__(kThreads, Op::kBlocks)
    EncodeManyKernel(const __grid_constant__ EncodeBatch batch) {
  SampleTile<false>(batch);
  const Tile tile = TileOf(batch);
  typename Op::Counts tally;
  Op::template Encode<kVector, kZeroNonFinite>(batch, tile, tally);
  SampleTile<true>(batch);
  FinishTile(batch, tile, tally);
}

template <class Op>
void EncodeMany(const EncodeBatch& batch, Stream stream) {
  if (batch.num_tiles == 0) return;
  const bool is_zero = batch.nonfinite == NonFinite::kZero;
  auto* const kernel = batch.is_aligned
                           ? (is_zero ? EncodeManyKernel<Op, true, true>
                                      : EncodeManyKernel<Op, true, false>)
                           : (is_zero ? EncodeManyKernel<Op, false, true>
                                      : EncodeManyKernel<Op, false, false>);
  kernel<<<batch.num_tiles, kThreads, 0, StreamOf(stream)>>>(batch);
}

}  // namespace telegrad::kernels::cuda
