#include "kernels/block.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/block_codes.cuh"
#include "kernels/cuda/block_decode.cuh"
#include "kernels/cuda/cuda_kernels.h"

// A warp takes a block of elements: the first sweep finds the maximum, the
// second encodes. Where a block is the whole chunk (TernGrad), the grid finds
// the maximum first.
namespace telegrad::kernels::cuda {
namespace {

constexpr size_t kTile = 4 * kWarp;             // elements of a warp at once
constexpr size_t kKeptTiles = 8;                // held in registers
constexpr size_t kDitherTile = 16 * kWarp;      // 8 groups of draws
constexpr size_t kWideBlock = size_t{1} << 16;  // more than options allow

__device__ inline void CountAt(size_t i, Tally& counts) {
  ++counts.num_nonfinite;
  if (i < counts.first_nonfinite) counts.first_nonfinite = i;
}

// r + g of four elements. Past n: 0.
template <bool kVector, bool kZeroNonFinite, bool kCount>
__device__ inline void Corrected4(const float* grad, const float* residual,
                                  size_t i, size_t n, float (&v)[4],
                                  Tally& counts) {
  float g[4];
  Load4<kVector>(grad, i, n, g);
  Load4<kVector>(residual, i, n, v);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float sum = v[j] + g[j];
    if (kZeroNonFinite && !IsFinite(sum)) {
      if (kCount) CountAt(i + j, counts);
      v[j] = v[j] + 0.0f;
    } else {
      v[j] = sum;
    }
  }
}

template <bool kVector>
__device__ inline void Quantize4(float (&v)[4], size_t i, size_t n,
                                 const BlockScale& scale, float levels,
                                 uint32_t bits, bool odd, float* residual,
                                 uint8_t* codes, Tally& counts) {
  int32_t code[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    code[j] = QuantizeOne(scale.scale, scale.inverse, levels, odd, v[j]);
    const bool is_nonzero = odd ? scale.scale != 0 : code[j] != 0;
    counts.num_nonzero += is_nonzero && i + j < n;
  }
  Store4<kVector>(v, i, n, residual);
  StoreCodes4(code, i, n, bits, codes);
}

// Calls body(i, v) for a lane's elements i to i + 3 of each tile of a block, on
// all lanes, also for those past `to`. kKeep: blocks of at most kKeptTiles
// tiles, each with its own v.
template <bool kKeep, typename Body>
__device__ inline void ForEachTile(size_t from, size_t to,
                                   float (&kept)[kKeptTiles][4], Body body) {
  const unsigned first = 4 * (threadIdx.x % kWarp);
  if constexpr (kKeep) {
#pragma unroll
    for (size_t t = 0; t < kKeptTiles; ++t) {
      const size_t tile = from + t * kTile;
      if (tile < to) body(tile + first, kept[t]);
    }
  } else {
    for (; from < to; from += kTile) body(from + first, kept[0]);
  }
}

// Encodes blocks first_block, first_block + step ... before end_block.
template <bool kVector, bool kZeroNonFinite, bool kKeep>
__device__ inline void QuantizePart(const float* __restrict__ grad,
                                    float* __restrict__ residual, size_t n,
                                    const BlockFormat& format,
                                    uint8_t* __restrict__ payload,
                                    size_t first_block, size_t end_block,
                                    size_t step, Tally& counts) {
  const unsigned lane = threadIdx.x % kWarp;
  uint8_t* const codes = payload + ScaleBytes(n, format);
  const float levels = static_cast<float>(format.levels);
  for (size_t b = first_block; b < end_block; b += step) {
    const size_t from = b * format.block;
    const size_t to = n - from < format.block ? n : from + format.block;
    float kept[kKeptTiles][4];
    uint32_t most = 0;
    float squares[4] = {};
    ForEachTile<kKeep>(from, to, kept, [&](size_t i, float(&v)[4]) {
      Corrected4<kVector, kZeroNonFinite, kKeep>(grad, residual, i, to, v,
                                                 counts);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (format.odd) {
          squares[j] += SquareOf(v[j]);
        } else {
          most = MaxFinite(most, v[j]);
        }
      }
    });
    const BlockScale scale =
        format.odd
            ? OddScaleOf(SumOfLanes(squares), to - from, format)
            : ScaleOf(__uint_as_float(WarpMax(most)), kMostMaximum, format);
    if (lane == 0) PutBlockScale(scale.scale, b, format, payload);
    ForEachTile<kKeep>(from, to, kept, [&](size_t i, float(&v)[4]) {
      if (!kKeep) {
        Corrected4<kVector, kZeroNonFinite, true>(grad, residual, i, to, v,
                                                  counts);
      }
      Quantize4<kVector>(v, i, to, scale, levels, format.bits, format.odd,
                         residual, codes, counts);
    });
  }
}

template <bool kVector, bool kZeroNonFinite, bool kKeep>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    QuantizeKernel(const float* __restrict__ grad, float* __restrict__ residual,
                   size_t n, BlockFormat format, uint8_t* __restrict__ payload,
                   EncodeStats* stats) {
  Tally counts;
  QuantizePart<kVector, kZeroNonFinite, kKeep>(
      grad, residual, n, format, payload, GlobalThread() / kWarp,
      (n + format.block - 1) / format.block, NumThreads() / kWarp, counts);
  AddStats(counts, stats);
}

template <bool kKeep>
struct QuantizeTile {
  using Counts = Tally;
  static constexpr unsigned kBlocks = kLeastBlocks;
  template <bool kVector, bool kZeroNonFinite>
  static __device__ void Encode(const EncodeBatch& batch, const Tile& tile,
                                Tally& counts) {
    const size_t block = batch.format.block;
    const size_t first = tile.begin / block;
    QuantizePart<kVector, kZeroNonFinite, kKeep>(
        static_cast<const float*>(tile.grad), tile.residual,
        tile.span->num_elems, batch.format, tile.codes,
        first + threadIdx.x / kWarp, first + (tile.n + block - 1) / block,
        blockDim.x / kWarp, counts);
    // Indices count from the tile's first element.
    if (counts.num_nonfinite != 0) counts.first_nonfinite -= tile.begin;
  }
};

// Elements 4 * thread to 4 * thread + 3, and so on by 4 * num_threads.
template <bool kVector, bool kZeroNonFinite>
__device__ inline void SharedPart(const float* __restrict__ grad,
                                  float* __restrict__ residual, size_t n,
                                  uint32_t bits, float quantum,
                                  uint8_t* __restrict__ codes, size_t thread,
                                  size_t num_threads, Tally& counts) {
  const BlockScale scale = SharedScaleOf(quantum, bits);
  const float levels = static_cast<float>(SharedLevels(bits));
  const size_t before = 4 * (threadIdx.x % kWarp);  // this lane, in its warp
  for (size_t i = 4 * thread; i - before < n; i += 4 * num_threads) {
    float v[4];
    Corrected4<kVector, kZeroNonFinite, true>(grad, residual, i, n, v, counts);
    Quantize4<kVector>(v, i, n, scale, levels, bits, IsOdd(bits), residual,
                       codes, counts);
  }
}

template <bool kVector, bool kZeroNonFinite>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SharedQuantizeKernel(const float* __restrict__ grad,
                         float* __restrict__ residual, size_t n, uint32_t bits,
                         float quantum, uint8_t* __restrict__ codes,
                         EncodeStats* stats) {
  Tally counts;
  SharedPart<kVector, kZeroNonFinite>(grad, residual, n, bits, quantum, codes,
                                      GlobalThread(), NumThreads(), counts);
  AddStats(counts, stats);
}

struct SharedTile {
  using Counts = Tally;
  static constexpr unsigned kBlocks = kLeastBlocks;
  template <bool kVector, bool kZeroNonFinite>
  static __device__ void Encode(const EncodeBatch& batch, const Tile& tile,
                                Tally& counts) {
    const uint32_t bits = batch.format.bits;
    SharedPart<kVector, kZeroNonFinite>(
        static_cast<const float*>(tile.grad) + tile.begin,
        tile.residual + tile.begin, tile.n, bits, tile.span->threshold,
        tile.codes + tile.begin / 8 * bits, threadIdx.x, blockDim.x, counts);
  }
};

struct DitherArgs {
  const float* grad;
  size_t n;
  BlockFormat format;
  DitherLimit limit;
  DrawKey draw;
  bool counts_nonfinite;
  uint8_t* codes;
};

// 16 elements of [from, to): four counters of `lane`'s group, all their words.
template <bool kVector>
__device__ inline void Dither16(const DitherArgs& a, size_t from, size_t to,
                                unsigned lane, const BlockScale& scale,
                                Tally& counts) {
  const size_t group = from + lane / 4 * kDrawGroup;
  if (group >= to) return;
  const unsigned first = lane % 4 * 4;
  PhiloxWords words[4];
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) {
    words[j] = PhiloxDraw(a.draw, group / kDrawGroup * kDrawLanes + first + j);
  }
#pragma unroll
  for (unsigned w = 0; w < 4; ++w) {
    const size_t i = group + w * kDrawLanes + first;
    if (i >= to) continue;
    float g[4];
    int32_t code[4];
    Load4<kVector>(a.grad, i, to, g);
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      if (a.counts_nonfinite && !IsFinite(g[j])) CountAt(i + j, counts);
      code[j] = DitherOne(g[j], scale, a.format, words[j].word[w]);
      counts.num_nonzero += code[j] != 0 && i + j < to;
    }
    StoreCodes4(code, i, to, a.format.bits, a.codes);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DitherKernel(DitherArgs a, float* scales, EncodeStats* stats) {
  const unsigned lane = threadIdx.x % kWarp;
  const float limit = LimitOf(a.limit);
  Tally counts;
  for (size_t b = GlobalThread() / kWarp; b * a.format.block < a.n;
       b += NumThreads() / kWarp) {
    const size_t from = b * a.format.block;
    const size_t to = a.n - from < a.format.block ? a.n : from + a.format.block;
    uint32_t most = 0;
    for (size_t i = from + 4 * lane; i < to; i += kTile) {
      float g[4];
      Load4<kVector>(a.grad, i, to, g);
#pragma unroll
      for (int j = 0; j < 4; ++j) most = MaxFinite(most, g[j]);
    }
    const BlockScale scale =
        ScaleOf(__uint_as_float(WarpMax(most)), limit, a.format);
    if (lane == 0) scales[b] = scale.scale;
    for (size_t tile = from; tile < to; tile += kDitherTile) {
      Dither16<kVector>(a, tile, to, lane, scale, counts);
    }
  }
  AddStats(counts, stats);
}

// One block for the grid: *maximum (0 before) holds its bits.
template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    MaxKernel(const float* __restrict__ grad, size_t n, unsigned* maximum) {
  uint32_t most = 0;
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float g[4];
    Load4<kVector>(grad, i, n, g);
#pragma unroll
    for (int j = 0; j < 4; ++j) most = MaxFinite(most, g[j]);
  }
  most = WarpMax(most);
  if (threadIdx.x % kWarp == 0 && most != 0) atomicMax(maximum, most);
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    WideDitherKernel(DitherArgs a, const unsigned* maximum,
                     EncodeStats* stats) {
  const BlockScale scale =
      ScaleOf(__uint_as_float(*maximum), LimitOf(a.limit), a.format);
  Tally counts;
  for (size_t tile = GlobalThread() / kWarp * kDitherTile; tile < a.n;
       tile += NumThreads() / kWarp * kDitherTile) {
    Dither16<kVector>(a, tile, a.n, threadIdx.x % kWarp, scale, counts);
  }
  AddStats(counts, stats);
}

// The maximum, which the kernels before needed, becomes the payload's scale.
__global__ void FinishScale(BlockFormat format, DitherLimit limit,
                            float* maximum) {
  *maximum = ScaleOf(*maximum, LimitOf(limit), format).scale;
}

void BlockQuantize(const float* grad, float* residual, size_t n,
                   BlockFormat format, NonFinite nonfinite, uint8_t* payload,
                   EncodeStats* stats, Stream stream) {
  if (n == 0) return;
  const bool is_zero = nonfinite == NonFinite::kZero;
  const bool is_kept = format.block <= kKeptTiles * kTile;
  auto* kernel = is_kept ? (is_zero ? QuantizeKernel<false, true, true>
                                    : QuantizeKernel<false, false, true>)
                         : (is_zero ? QuantizeKernel<false, true, false>
                                    : QuantizeKernel<false, false, false>);
  if (IsAligned(grad, 16) && IsAligned(residual, 16)) {
    kernel = is_kept ? (is_zero ? QuantizeKernel<true, true, true>
                                : QuantizeKernel<true, false, true>)
                     : (is_zero ? QuantizeKernel<true, true, false>
                                : QuantizeKernel<true, false, false>);
  }
  kernel<<<GridFor(kWarp * NumBlocks(n, format)), kThreads, 0,
           StreamOf(stream)>>>(grad, residual, n, format, payload, stats);
}

void SharedQuantize(const float* grad, float* residual, size_t n, uint32_t bits,
                    float quantum, NonFinite nonfinite, uint8_t* codes,
                    EncodeStats* stats, Stream stream) {
  if (n == 0) return;
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel = is_vector ? (is_zero ? SharedQuantizeKernel<true, true>
                                            : SharedQuantizeKernel<true, false>)
                       : is_zero ? SharedQuantizeKernel<false, true>
                                 : SharedQuantizeKernel<false, false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      grad, residual, n, bits, quantum, codes, stats);
}

template <bool kVector>
void LaunchDither(const DitherArgs& a, uint8_t* payload, EncodeStats* stats,
                  cudaStream_t stream) {
  auto* const scales = reinterpret_cast<float*>(payload);
  if (a.n > a.format.block || a.format.block <= kWideBlock) {
    const unsigned grid = GridFor(kWarp * NumBlocks(a.n, a.format));
    DitherKernel<kVector><<<grid, kThreads, 0, stream>>>(a, scales, stats);
    return;
  }
  auto* const maximum = reinterpret_cast<unsigned*>(payload);
  cudaMemsetAsync(maximum, 0, sizeof(*maximum), stream);
  MaxKernel<kVector>
      <<<GridFor((a.n + 3) / 4), kThreads, 0, stream>>>(a.grad, a.n, maximum);
  WideDitherKernel<kVector>
      <<<GridFor((a.n + 15) / 16), kThreads, 0, stream>>>(a, maximum, stats);
  FinishScale<<<1, 1, 0, stream>>>(a.format, a.limit, scales);
}

void Dither(const float* grad, size_t n, BlockFormat format, DitherLimit limit,
            DrawKey draw, NonFinite nonfinite, uint8_t* payload,
            EncodeStats* stats, Stream stream) {
  if (n == 0) return;
  const DitherArgs args = {grad,
                           n,
                           format,
                           limit,
                           draw,
                           nonfinite == NonFinite::kZero,
                           payload + ScaleBytes(n, format)};
  (IsAligned(grad, 16)
       ? LaunchDither<true>
       : LaunchDither<false>)(args, payload, stats, StreamOf(stream));
}

}  // namespace

void QuantizeMany(const EncodeBatch& batch, Stream stream) {
  const bool is_kept = batch.format.block <= kKeptTiles * kTile;
  is_kept ? EncodeMany<QuantizeTile<true>>(batch, stream)
          : EncodeMany<QuantizeTile<false>>(batch, stream);
}
void SharedQuantizeMany(const EncodeBatch& batch, Stream stream) {
  EncodeMany<SharedTile>(batch, stream);
}
void BlockDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, BlockDecodeManyKernel<true>,
                BlockDecodeManyKernel<false>, stream);
}
void SharedDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, SharedDecodeManyKernel<true>,
                SharedDecodeManyKernel<false>, stream);
}

BlockKernels Block() {
  BlockKernels kernels;
  kernels.quantize = BlockQuantize;
  kernels.shared_quantize = SharedQuantize;
  kernels.dither = Dither;
  kernels.decode = BlockDecode<false>;
  kernels.decode_add = BlockDecode<true>;
  kernels.shared_decode = SharedDecode<false>;
  kernels.shared_decode_add = SharedDecode<true>;
  kernels.sum_codes = SumCodes;
  kernels.shared_sum_decode = SharedSumDecode;
  return kernels;
}

}  // namespace telegrad::kernels::cuda
