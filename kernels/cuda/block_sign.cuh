#pragma once

#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/signs.cuh"

// Signs with a scale per block of elements.
namespace telegrad::kernels::cuda {

// The first thread's mean magnitude of `m` elements; thread t has the sums of
// lanes 4t to 4t + 3. All threads of the block take part.
__device__ inline float MeanOfLanes(const float (&sums)[4], size_t m) {
  __shared__ float4 lanes[kThreads];
  lanes[threadIdx.x] = make_float4(sums[0], sums[1], sums[2], sums[3]);
  __syncthreads();
  if (threadIdx.x >= kWarp) return 0;
  const auto add = [](float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  };
  // Lanes l and l + 512, 256, 128 are 128, 64, 32 threads apart.
  float4 quarters[4];
#pragma unroll
  for (unsigned q = 0; q < 4; ++q) {
    const unsigned t = threadIdx.x + kWarp * q;
    quarters[q] = add(lanes[t], lanes[t + 4 * kWarp]);
  }
  float4 sum =
      add(add(quarters[0], quarters[2]), add(quarters[1], quarters[3]));
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    sum = add(sum, make_float4(__shfl_down_sync(0xFFFFFFFFu, sum.x, step),
                               __shfl_down_sync(0xFFFFFFFFu, sum.y, step),
                               __shfl_down_sync(0xFFFFFFFFu, sum.z, step),
                               __shfl_down_sync(0xFFFFFFFFu, sum.w, step)));
  }
  const float total = (sum.x + sum.z) + (sum.y + sum.w);
  const float mean = total / static_cast<float>(m);
  constexpr float kLargest = 3.4028234663852886e38f;
  return mean <= kLargest ? mean : kLargest;
}

// The values of elements [i, i + 4); their magnitudes are added to `sums`.
template <bool kVector, bool kZero>
__device__ inline void LoadValues(const float* grad, const float* residual,
                                  size_t i, size_t end, float (&v)[4],
                                  float (&sums)[4], Tally& counts) {
  float g[4];
  Load4<kVector>(grad, i, end, g);
  Load4<kVector>(residual, i, end, v);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = Value<kZero>(v[j], g[j], i + j, counts);
    sums[j] += fabsf(v[j]);
  }
}

// Stores what +-scale leaves of elements [i, i + 4); returns their bits.
template <bool kVector>
__device__ inline uint32_t TakeSigns(float (&v)[4], float scale, size_t i,
                                     size_t end, float* residual) {
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const bool is_positive = v[j] >= 0;
    v[j] = is_positive ? v[j] - scale : v[j] + scale;
    bits = bits << 1 | (is_positive && i + j < end ? 1u : 0u);
  }
  Store4<kVector>(v, i, end, residual);
  return bits;
}

// Encodes blocks first_block, first_block + step ... before end_block. A block
// of threads takes a block of elements, kRows times kSignLanes of them at most,
// and keeps its values in registers.
template <int kRows, bool kVector, bool kZero>
__device__ inline void BlockEncodePart(const float* __restrict__ grad,
                                       float* __restrict__ residual, size_t n,
                                       size_t block, size_t first_block,
                                       size_t end_block, size_t step,
                                       uint8_t* __restrict__ payload,
                                       Tally& counts) {
  __shared__ float scale;
  const size_t num_blocks = (n + block - 1) / block;
  for (size_t b = first_block; b < end_block; b += step) {
    const size_t end = min(n, (b + 1) * block);
    const size_t size = end - b * block;
    const size_t first = b * block + 4 * threadIdx.x;
    float v[kRows][4];
    float sums[4] = {};
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      LoadValues<kVector, kZero>(grad, residual, first + row * kSignLanes, end,
                                 v[row], sums, counts);
    }
    const float mean = MeanOfLanes(sums, size);
    if (threadIdx.x == 0) {
      scale = mean;
      StoreFloat(mean, b, payload);
      if (mean != 0) counts.num_nonzero += static_cast<uint32_t>(size);
    }
    __syncthreads();
    const size_t bits_end = b * block + 8 * BytesOfSigns(size);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const size_t i = first + row * kSignLanes;
      const uint32_t bits = TakeSigns<kVector>(v[row], scale, i, end, residual);
      StoreBits(bits, i, i < bits_end, payload + 4 * num_blocks);
    }
  }
}

template <int kRows, bool kVector, bool kZero>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    BlockEncodeKernel(const float* __restrict__ grad,
                      float* __restrict__ residual, size_t n, size_t block,
                      size_t num_blocks, uint8_t* __restrict__ payload,
                      EncodeStats* stats) {
  Tally counts;
  BlockEncodePart<kRows, kVector, kZero>(grad, residual, n, block, blockIdx.x,
                                         num_blocks, gridDim.x, payload,
                                         counts);
  AddStats(counts, stats);
}

template <int kRows>
struct BlockEncodeTile {
  using Counts = Tally;
  static constexpr unsigned kBlocks = kLeastBlocks;
  template <bool kVector, bool kZero>
  static __device__ void Encode(const EncodeBatch& batch, const Tile& tile,
                                Tally& counts) {
    const size_t block = batch.format.block;
    const size_t first = tile.begin / block;
    BlockEncodePart<kRows, kVector, kZero>(
        static_cast<const float*>(tile.grad), tile.residual,
        tile.span->num_elems, block, first,
        first + (tile.n + block - 1) / block, 1, tile.codes, counts);
    // Indices count from the tile's first element.
    if (counts.num_nonfinite != 0) counts.first_nonfinite -= tile.begin;
  }
};

}  // namespace telegrad::kernels::cuda
