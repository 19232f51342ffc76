#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/radix_encode.cuh"
#include "kernels/radix.h"

// A thread takes a quad of codes; a warp a block of sums, a lane a number of
// it.
namespace telegrad::kernels::cuda {
namespace {

template <bool kVector, bool kZeroNonFinite>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    EncodeKernel(const float* __restrict__ grad, float* __restrict__ residual,
                 size_t n, float threshold, uint8_t* __restrict__ payload,
                 size_t num_quads, EncodeStats* stats) {
  Tally tally;
  RadixEncodePart<kVector, kZeroNonFinite>(grad, residual, n, threshold,
                                           payload, num_quads, GlobalThread(),
                                           NumThreads(), tally);
  AddStats(tally, stats);
}

// Between passes `out` holds the sums so far, which a float does exactly.
// kAdd, of one frame: onto what `out` holds.
template <bool kAdd>
__device__ inline float NextValue(int sum, const Pass& pass, float threshold,
                                  float old) {
  const float k = static_cast<float>(sum - static_cast<int>(pass.num_frames));
  if (kAdd) return old + k * threshold;
  const float total = pass.is_first ? k : old + k;
  return pass.is_last ? total * threshold : total;
}

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DecodeKernel(const __grid_constant__ Pass pass, size_t n, float threshold,
                 float* __restrict__ out, size_t num_quads) {
  const bool has_old = kAdd || !pass.is_first;
  for (size_t q = GlobalThread(); q < num_quads; q += NumThreads()) {
    const Quad quad = QuadAt(q, n);
    const DigitSums sums = SumQuad(pass, quad);
    if (quad.is_whole()) {
#pragma unroll
      for (int p = 0; p < kDigits; ++p) {
        const size_t i = quad.element(p);
        float values[4] = {};
        if (has_old) Load4<kVector>(out, i, n, values);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          values[c] =
              NextValue<kAdd>(sums.at(p, c), pass, threshold, values[c]);
        }
        Store4<kVector>(values, i, n, out);
      }
      continue;
    }
#pragma unroll
    for (int p = 0; p < kDigits; ++p) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (!quad.has(p, c)) continue;
        float& value = out[quad.element(p) + c];
        value = NextValue<kAdd>(sums.at(p, c), pass, threshold,
                                has_old ? value : 0.0f);
      }
    }
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  const uint8_t* const codes =
      tile.codes + tile.begin / kRadixBlock * kRadixBlockBytes;
  const DecodeOut out = tile.out.From(tile.begin);
  // Values are this, its negative or 0.
  const float threshold = tile.Scaled(tile.span->threshold);
  const size_t num_quads = NumQuads(tile.n);
  for (size_t q = threadIdx.x; q < num_quads; q += blockDim.x) {
    const Quad quad = QuadAt(q, tile.n);
    DigitSums sums = {};
    AddQuad(codes, quad, sums);
#pragma unroll
    for (int p = 0; p < kDigits; ++p) {
      float values[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        values[c] = static_cast<float>(sums.at(p, c) - 1) * threshold;
      }
      if (quad.is_whole()) {
        out.Store<kVector>(values, quad.element(p), tile.n);
        continue;
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (quad.has(p, c)) out.StoreOne(values[c], quad.element(p) + c);
      }
    }
  }
}

// Digit p of byte c of a quad, from its residual on.
__device__ inline void ReencodeDigit(const Pass& pass, const DigitSums& sums,
                                     int p, int c, Quantum quantum,
                                     int32_t& residual, uint32_t& number) {
  const int k = sums.at(p, c) - static_cast<int>(pass.num_frames);
  const int sign = ReencodeOne(k, pass.is_last, quantum, residual);
  number = 3 * number + static_cast<uint32_t>(sign + 1);
}

// A pass before the last only adds its sums to the residual.
template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    ReencodeKernel(const __grid_constant__ Pass pass, size_t n, Quantum quantum,
                   int32_t* __restrict__ residual,
                   uint8_t* __restrict__ payload, size_t num_quads) {
  for (size_t q = GlobalThread(); q < num_quads; q += NumThreads()) {
    const Quad quad = QuadAt(q, n);
    const DigitSums sums = SumQuad(pass, quad);
    uint32_t numbers[4] = {};
    if (quad.is_whole()) {
#pragma unroll
      for (int p = kDigits - 1; p >= 0; --p) {
        int32_t r[4];
        Load4<kVector>(residual, quad.element(p), n, r);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          ReencodeDigit(pass, sums, p, c, quantum, r[c], numbers[c]);
        }
        Store4<kVector>(r, quad.element(p), n, residual);
      }
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
#pragma unroll
        for (int p = kDigits - 1; p >= 0; --p) {
          if (!quad.has(p, c)) continue;
          ReencodeDigit(pass, sums, p, c, quantum,
                        residual[quad.element(p) + c], numbers[c]);
        }
      }
    }
    if (pass.is_last) StoreQuad(numbers, quad, q, payload);
  }
}

// What a thread block sums at once: whole blocks of codes and of sums.
struct Tile {
  size_t code_blocks;
  size_t sum_blocks;
  size_t elems() const { return code_blocks * kRadixBlock; }
};

constexpr size_t kMaxTileBlocks = 16;
static_assert(kMaxGroupDigits <= kMaxTileBlocks, "a tile holds a piece");

inline Tile TileFor(const DigitGroup& group) {
  Tile tile;
  tile.code_blocks = kMaxTileBlocks / group.digits * group.digits;
  tile.sum_blocks =
      tile.code_blocks * (kRadixBlock / kNumbersPerBlock) / group.digits;
  return tile;
}

// The sums of a tile's elements, 0 past n.
__device__ inline void SumTile(const Pass& pass, size_t n, size_t first_block,
                               size_t num_blocks, uint16_t* counts) {
  for (size_t item = threadIdx.x; item < num_blocks * kQuadsPerBlock;
       item += kThreads) {
    const size_t index = first_block * kQuadsPerBlock + item;
    if (index / kQuadsPerBlock * kRadixBlock >= n) break;
    const Quad quad = QuadAt(index, n);
    if (quad.column >= quad.num_bytes) continue;
    const DigitSums sums = SumQuad(pass, quad);
#pragma unroll
    for (int p = 0; p < kDigits; ++p) {
      const size_t at = quad.element(p) - first_block * kRadixBlock;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (quad.has(p, c)) {
          counts[at + c] = static_cast<uint16_t>(sums.at(p, c));
        }
      }
    }
  }
}

// A pass after the first adds its numbers to those that `packed` holds: no
// digit of theirs carries.
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SumPackKernel(const __grid_constant__ Pass pass, size_t n, Tile tile,
                  DigitGroup group, uint8_t* packed) {
  __shared__ uint16_t counts[kMaxTileBlocks * kRadixBlock];
  const unsigned lane = threadIdx.x % kWarp;
  const size_t block_elems = kNumbersPerBlock * group.digits;
  const size_t num_sum_blocks = (n + block_elems - 1) / block_elems;
  const size_t tile_elems = tile.code_blocks * kRadixBlock;
  for (size_t t = blockIdx.x; t * tile_elems < n; t += gridDim.x) {
    if ((t + 1) * tile_elems > n) {
      for (size_t i = threadIdx.x; i < tile_elems; i += kThreads) {
        counts[i] = 0;
      }
      __syncthreads();
    }
    SumTile(pass, n, t * tile.code_blocks, tile.code_blocks, counts);
    __syncthreads();
    for (size_t b = threadIdx.x / kWarp; b < tile.sum_blocks; b += kWarps) {
      const size_t block = t * tile.sum_blocks + b;
      if (block >= num_sum_blocks) break;
      const uint16_t* digits = counts + b * block_elems + lane;
      uint32_t number = 0;
      for (size_t i = group.digits; i-- > 0;) {
        number = number * group.radix + digits[kNumbersPerBlock * i];
      }
      const size_t word = block * group.bits + lane;
      if (!pass.is_first) {
        number += Transpose(lane < group.bits ? LoadWord(packed, word) : 0u);
      }
      const uint32_t plane = Transpose(number);
      if (lane < group.bits) StoreWord(plane, word, packed);
    }
    __syncthreads();
  }
}

// From block `block` on, every `step`-th.
__device__ inline void DecodePacked(const uint8_t* __restrict__ packed,
                                    uint32_t num_frames,
                                    const DigitGroup& group, size_t n,
                                    float threshold, float scale,
                                    const DecodeOut& out, size_t block,
                                    size_t step) {
  const unsigned lane = threadIdx.x % kWarp;
  const size_t block_elems = kNumbersPerBlock * group.digits;
  for (; block * block_elems < n; block += step) {
    const size_t word = block * group.bits + lane;
    uint32_t number =
        Transpose(lane < group.bits ? LoadWord(packed, word) : 0u);
    size_t i = block * block_elems + lane;
    for (uint32_t d = 0; d < group.digits && i < n; ++d) {
      const auto rest = static_cast<uint32_t>(
          static_cast<uint64_t>(number) * group.reciprocal >> group.shift);
      const int sum = static_cast<int>(number - rest * group.radix) -
                      static_cast<int>(num_frames);
      out.StoreOne(static_cast<float>(sum) * threshold * scale, i);
      number = rest;
      i += kNumbersPerBlock;
    }
  }
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    PackedDecodeKernel(const uint8_t* __restrict__ packed, uint32_t num_frames,
                       DigitGroup group, size_t n, float threshold,
                       float* __restrict__ out) {
  DecodePacked(packed, num_frames, group, n, threshold, 1, OutOf(out),
               GlobalThread() / kWarp, NumThreads() / kWarp);
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    PackedDecodeManyKernel(const __grid_constant__ DecodeBatch batch,
                           DigitGroup group) {
  const DecodeTile tile = TileOf(batch);
  const size_t blocks_before = tile.begin / (kNumbersPerBlock * group.digits);
  DecodePacked(tile.codes + 4 * group.bits * blocks_before, batch.num_frames,
               group, tile.n, tile.span->threshold, tile.span->scale,
               tile.out.From(tile.begin), threadIdx.x / kWarp, kWarps);
}

template <bool kAdd>
void LaunchDecode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                  float threshold, float* out, Stream stream) {
  if (n == 0) return;
  const size_t num_quads = NumQuads(n);
  auto* const kernel =
      IsAligned(out, 16) ? DecodeKernel<true, kAdd> : DecodeKernel<false, kAdd>;
  ForEachPass(frames, num_frames, [=](const Pass& pass) {
    kernel<<<GridFor(num_quads), kThreads, 0, StreamOf(stream)>>>(
        pass, n, threshold, out, num_quads);
  });
}

void RadixEncode(const float* grad, float* residual, size_t n, float threshold,
                 NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
                 Stream stream) {
  if (n == 0) return;
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel =
      is_vector
          ? (is_zero ? EncodeKernel<true, true> : EncodeKernel<true, false>)
          : (is_zero ? EncodeKernel<false, true> : EncodeKernel<false, false>);
  const size_t num_quads = NumQuads(n);
  kernel<<<GridFor(num_quads), kThreads, 0, StreamOf(stream)>>>(
      grad, residual, n, threshold, payload, num_quads, stats);
}

void RadixDecode(const uint8_t* payload, size_t n, float threshold, float* out,
                 Stream stream) {
  LaunchDecode<false>(&payload, 1, n, threshold, out, stream);
}

void RadixDecodeAdd(const uint8_t* payload, size_t n, float threshold,
                    float* sum, Stream stream) {
  LaunchDecode<true>(&payload, 1, n, threshold, sum, stream);
}

void RadixSumDecode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                    float threshold, float* out, Stream stream) {
  LaunchDecode<false>(frames, num_frames, n, threshold, out, stream);
}

void RadixReencode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                   int32_t* residual, uint32_t shift, int32_t quantum,
                   uint8_t* payload, Stream stream) {
  if (n == 0) return;
  const size_t num_quads = NumQuads(n);
  auto* const kernel =
      IsAligned(residual, 16) ? ReencodeKernel<true> : ReencodeKernel<false>;
  ForEachPass(frames, num_frames, [=](const Pass& pass) {
    kernel<<<GridFor(num_quads), kThreads, 0, StreamOf(stream)>>>(
        pass, n, Quantum{shift, quantum}, residual, payload, num_quads);
  });
}

void RadixSumPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                  uint8_t* packed, Stream stream) {
  if (n == 0) return;
  const DigitGroup group = DigitGroupFor(num_frames);
  const Tile tile = TileFor(group);
  const size_t num_tiles = (n + tile.elems() - 1) / tile.elems();
  ForEachPass(frames, num_frames, [=](const Pass& pass) {
    SumPackKernel<<<GridFor(num_tiles * kThreads), kThreads, 0,
                    StreamOf(stream)>>>(pass, n, tile, group, packed);
  });
}

void RadixPackedSumDecode(const uint8_t* packed, uint32_t num_frames, size_t n,
                          float threshold, float* out, Stream stream) {
  if (n == 0) return;
  const DigitGroup group = DigitGroupFor(num_frames);
  const size_t num_blocks = (n + SumBlock(group) - 1) / SumBlock(group);
  PackedDecodeKernel<<<GridFor(num_blocks * kWarp), kThreads, 0,
                       StreamOf(stream)>>>(packed, num_frames, group, n,
                                           threshold, out);
}

}  // namespace

void RadixEncodeMany(const EncodeBatch& batch, Stream stream) {
  EncodeMany<RadixEncodeTile>(batch, stream);
}

void RadixDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, DecodeManyKernel<true>, DecodeManyKernel<false>, stream);
}
void RadixSumDecodeMany(const DecodeBatch& batch, Stream stream) {
  if (batch.num_tiles == 0) return;
  PackedDecodeManyKernel<<<batch.num_tiles, kThreads, 0, StreamOf(stream)>>>(
      batch, DigitGroupFor(batch.num_frames));
}

RadixKernels Radix() {
  RadixKernels kernels;
  kernels.encode = RadixEncode;
  kernels.decode = RadixDecode;
  kernels.decode_add = RadixDecodeAdd;
  kernels.sum_pack = RadixSumPack;
  kernels.packed_sum_decode = RadixPackedSumDecode;
  kernels.sum_decode = RadixSumDecode;
  kernels.reencode = RadixReencode;
  return kernels;
}

}  // namespace telegrad::kernels::cuda
