#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/block_sign.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/planes.cuh"
#include "kernels/cuda/signs.cuh"
#include "kernels/sign.h"

// A thread takes four elements at a time: 16 bytes of each array. Two threads
// share a byte of bits, which the even one writes.
namespace telegrad::kernels::cuda {
namespace {

// Encodes as thread number `thread` of `num_threads`, of whole warps.
template <bool kVector, bool kZero>
__device__ inline void OneBitEncodePart(const float* __restrict__ grad,
                                        float* __restrict__ residual, size_t n,
                                        float threshold, float magnitude,
                                        uint8_t* __restrict__ bytes,
                                        size_t thread, size_t num_threads,
                                        WideTally& counts) {
  const size_t end = 8 * BytesOfSigns(n);
  const unsigned lane = threadIdx.x % kWarp;
  // All threads of a warp take the same number of turns.
  for (size_t i = 4 * thread; i - 4 * lane < end; i += 4 * num_threads) {
    float g[4];
    float r[4];
    Load4<kVector>(grad, i, n, g);
    Load4<kVector>(residual, i, n, r);
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float v = Value<kZero>(r[j], g[j], i + j, counts);
      const bool is_above = v > threshold;
      r[j] = is_above ? v - magnitude : v + magnitude;
      bits = bits << 1 | (is_above && i + j < n ? 1u : 0u);
    }
    Store4<kVector>(r, i, n, residual);
    StoreBits(bits, i, i < end, bytes);
  }
}

template <bool kVector, bool kZero>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    OneBitEncodeKernel(const float* __restrict__ grad,
                       float* __restrict__ residual, size_t n, float threshold,
                       float magnitude, uint8_t* __restrict__ payload,
                       EncodeStats* stats) {
  WideTally counts;
  OneBitEncodePart<kVector, kZero>(grad, residual, n, threshold, magnitude,
                                   payload, GlobalThread(), NumThreads(),
                                   counts);
  if (GlobalThread() == 0) {
    counts.num_nonzero = n;
    StoreFloat(magnitude, BytesOfSigns(n) / 4, payload);
  }
  AddStats(counts, stats);
}

struct OneBitEncodeTile {
  using Counts = WideTally;
  static constexpr unsigned kBlocks = kLeastBlocks;
  template <bool kVector, bool kZero>
  static __device__ void Encode(const EncodeBatch&, const Tile& tile,
                                WideTally& counts) {
    OneBitEncodePart<kVector, kZero>(
        static_cast<const float*>(tile.grad) + tile.begin,
        tile.residual + tile.begin, tile.n, tile.span->threshold, 1.0f,
        tile.codes + tile.begin / 8, threadIdx.x, blockDim.x, counts);
    if (threadIdx.x != 0) return;
    counts.num_nonzero = tile.n;
    if (tile.begin == 0) {
      StoreFloat(1.0f, BytesOfSigns(tile.span->num_elems) / 4, tile.codes);
    }
  }
};

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    OneBitDecodeKernel(const uint8_t* __restrict__ payload, size_t n,
                       float* __restrict__ out) {
  const float magnitude = LoadFloat(payload, BytesOfSigns(n) / 4);
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    DecodeFour<kVector, kAdd>(LoadBits(payload, i), magnitude, i, n, out);
  }
}

constexpr int kMostPassPlanes = SignCountPlanes(kFramesPerPass);
constexpr int kMostPlanes = SignCountPlanes(kMaxSumContributors);

// A thread takes a word of each frame. A pass after the first adds to what
// `counts` holds.
template <int kPlanes>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    CountPackKernel(const __grid_constant__ Pass pass, size_t num_words,
                    uint32_t num_planes, uint8_t* counts) {
  for (size_t w = GlobalThread(); w < num_words; w += NumThreads()) {
    uint32_t planes[kPlanes] = {};
    for (uint32_t f = 0; f < pass.num_frames; ++f) {
      uint32_t carry = LoadWord(pass.frames[f], w);
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        const uint32_t next = planes[p] & carry;
        planes[p] ^= carry;
        carry = next;
      }
    }
    uint32_t carry = 0;
#pragma unroll
    for (int p = 0; p < kMostPlanes; ++p) {
      if (p >= num_planes) break;
      uint32_t word = p < kPlanes ? planes[p] : 0;
      if (!pass.is_first) {
        const uint32_t old = LoadWord(counts, p * num_words + w);
        const uint32_t next = (old & word) | (old & carry) | (word & carry);
        word ^= old ^ carry;
        carry = next;
      }
      StoreWord(word, p * num_words + w, counts);
    }
  }
}

// Decodes, of an array of n elements, those from `i` to `end`, every `step`-th
// four.
template <bool kVector>
__device__ inline void CountDecodePart(const uint8_t* __restrict__ counts,
                                       uint32_t num_frames, uint32_t num_planes,
                                       size_t n, float factor,
                                       const DecodeOut& out, size_t i,
                                       size_t end, size_t step) {
  const size_t bytes = BytesOfSigns(n);
  for (; i < end; i += step) {
    uint32_t count[4] = {};
    for (uint32_t p = 0; p < num_planes; ++p) {
      const uint32_t bits = LoadBits(counts + p * bytes, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) count[j] |= (bits >> (3 - j) & 1u) << p;
    }
    float values[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j] = static_cast<float>(2 * static_cast<int>(count[j]) -
                                     static_cast<int>(num_frames)) *
                  factor;
    }
    out.Store<kVector>(values, i, n);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    CountDecodeKernel(const uint8_t* __restrict__ counts, uint32_t num_frames,
                      uint32_t num_planes, size_t n, float* __restrict__ out) {
  CountDecodePart<kVector>(counts, num_frames, num_planes, n, 1, OutOf(out),
                           4 * GlobalThread(), n, 4 * NumThreads());
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    CountDecodeManyKernel(const __grid_constant__ DecodeBatch batch,
                          uint32_t num_planes) {
  const DecodeTile tile = TileOf(batch);
  CountDecodePart<kVector>(tile.codes, batch.num_frames, num_planes,
                           tile.span->num_elems, tile.span->scale, tile.out,
                           tile.begin + 4 * threadIdx.x, tile.begin + tile.n,
                           4 * blockDim.x);
}

// +-magnitude of elements [i, i + 4).
template <bool kVector>
__device__ inline void StoreSigns(uint32_t bits, float magnitude, size_t i,
                                  size_t n, const DecodeOut& out) {
  float values[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    values[j] = (bits >> (3 - j) & 1u) != 0 ? magnitude : -magnitude;
  }
  out.Store<kVector>(values, i, n);
}

// kHasBlocks: of onebit, else of 1bit.
template <bool kVector, bool kHasBlocks>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SignDecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  const size_t n = tile.span->num_elems;
  const auto steps_per_block =
      static_cast<uint32_t>(batch.format.block / kSignBlockStep);
  const uint8_t* const bits =
      tile.codes + (kHasBlocks ? 4 * ((n - 1) / batch.format.block + 1) : 0);
  const float magnitude =
      kHasBlocks ? 0 : LoadFloat(tile.codes, BytesOfSigns(n) / 4);
  const size_t end = tile.begin + tile.n;
  for (size_t i = tile.begin + 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
    const auto step = static_cast<uint32_t>(i / kSignBlockStep);
    const float scale =
        kHasBlocks ? LoadFloat(tile.codes, step / steps_per_block) : magnitude;
    StoreSigns<kVector>(LoadBits(bits, i), tile.Scaled(scale), i, n, tile.out);
  }
}

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    BlockDecodeKernel(const uint8_t* __restrict__ payload, size_t n,
                      uint32_t steps_per_block, size_t num_blocks,
                      float* __restrict__ out) {
  const uint8_t* const bits = payload + 4 * num_blocks;
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    // 32 bits suffice for 2^39 elements, and divide faster.
    const uint32_t step = static_cast<uint32_t>(i / kSignBlockStep);
    const float scale = LoadFloat(payload, step / steps_per_block);
    DecodeFour<kVector, kAdd>(LoadBits(bits, i), scale, i, n, out);
  }
}

void OneBitEncode(const float* grad, float* residual, size_t n, float threshold,
                  float magnitude, NonFinite nonfinite, uint8_t* payload,
                  EncodeStats* stats, Stream stream) {
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel = is_vector ? (is_zero ? OneBitEncodeKernel<true, true>
                                            : OneBitEncodeKernel<true, false>)
                                 : (is_zero ? OneBitEncodeKernel<false, true>
                                            : OneBitEncodeKernel<false, false>);
  kernel<<<GridFor(2 * SignBytes(n)), kThreads, 0, StreamOf(stream)>>>(
      grad, residual, n, threshold, magnitude, payload, stats);
}

template <bool kAdd>
void OneBitDecode(const uint8_t* payload, size_t n, float* out, Stream stream) {
  if (n == 0) return;
  auto* const kernel = IsAligned(out, 16) ? OneBitDecodeKernel<true, kAdd>
                                          : OneBitDecodeKernel<false, kAdd>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(payload, n,
                                                                  out);
}

void CountPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
               uint8_t* counts, Stream stream) {
  if (n == 0) return;
  const size_t num_words = SignBytes(n) / 4;
  for (uint32_t from = 0; from < num_frames; from += kFramesPerPass) {
    Pass pass = {};
    const uint32_t left = num_frames - from;
    pass.num_frames = left < kFramesPerPass ? left : kFramesPerPass;
    pass.is_first = from == 0;
    for (uint32_t f = 0; f < pass.num_frames; ++f) {
      pass.frames[f] = frames[from + f];
    }
    auto* const kernel = pass.num_frames < 4 ? CountPackKernel<2>
                         : pass.num_frames < 16
                             ? CountPackKernel<4>
                             : CountPackKernel<kMostPassPlanes>;
    kernel<<<GridFor(num_words), kThreads, 0, StreamOf(stream)>>>(
        pass, num_words, SignCountPlanes(num_frames), counts);
  }
}

void CountDecode(const uint8_t* counts, uint32_t num_frames, size_t n,
                 float* out, Stream stream) {
  if (n == 0) return;
  auto* const kernel =
      IsAligned(out, 16) ? CountDecodeKernel<true> : CountDecodeKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      counts, num_frames, SignCountPlanes(num_frames), n, out);
}

template <int kRows>
auto* BlockEncodeFor(bool is_vector, bool is_zero) {
  return is_vector ? (is_zero ? BlockEncodeKernel<kRows, true, true>
                              : BlockEncodeKernel<kRows, true, false>)
                   : (is_zero ? BlockEncodeKernel<kRows, false, true>
                              : BlockEncodeKernel<kRows, false, false>);
}

void BlockEncode(const float* grad, float* residual, size_t n, size_t block,
                 NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
                 Stream stream) {
  if (n == 0) return;
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel =
      block <= kSignLanes       ? BlockEncodeFor<1>(is_vector, is_zero)
      : block <= 2 * kSignLanes ? BlockEncodeFor<2>(is_vector, is_zero)
      : block <= 4 * kSignLanes ? BlockEncodeFor<4>(is_vector, is_zero)
                                : BlockEncodeFor<8>(is_vector, is_zero);
  kernel<<<GridFor(kThreads * NumSignBlocks(n, block)), kThreads, 0,
           StreamOf(stream)>>>(grad, residual, n, block,
                               NumSignBlocks(n, block), payload, stats);
}

template <bool kAdd>
void BlockDecode(const uint8_t* payload, size_t n, size_t block, float* out,
                 Stream stream) {
  if (n == 0) return;
  auto* const kernel = IsAligned(out, 16) ? BlockDecodeKernel<true, kAdd>
                                          : BlockDecodeKernel<false, kAdd>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      payload, n, static_cast<uint32_t>(block / kSignBlockStep),
      NumSignBlocks(n, block), out);
}

}  // namespace

void OneBitEncodeMany(const EncodeBatch& batch, Stream stream) {
  EncodeMany<OneBitEncodeTile>(batch, stream);
}
void BlockSignEncodeMany(const EncodeBatch& batch, Stream stream) {
  const size_t block = batch.format.block;
  block <= kSignLanes       ? EncodeMany<BlockEncodeTile<1>>(batch, stream)
  : block <= 2 * kSignLanes ? EncodeMany<BlockEncodeTile<2>>(batch, stream)
  : block <= 4 * kSignLanes ? EncodeMany<BlockEncodeTile<4>>(batch, stream)
                            : EncodeMany<BlockEncodeTile<8>>(batch, stream);
}

void OneBitDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, SignDecodeManyKernel<true, false>,
                SignDecodeManyKernel<false, false>, stream);
}
void BlockSignDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, SignDecodeManyKernel<true, true>,
                SignDecodeManyKernel<false, true>, stream);
}
void CountDecodeMany(const DecodeBatch& batch, Stream stream) {
  if (batch.num_tiles == 0) return;
  auto* const kernel = batch.is_aligned ? CountDecodeManyKernel<true>
                                        : CountDecodeManyKernel<false>;
  kernel<<<batch.num_tiles, kThreads, 0, StreamOf(stream)>>>(
      batch, SignCountPlanes(batch.num_frames));
}

SignKernels Sign() {
  SignKernels sign;
  sign.one_bit_encode = OneBitEncode;
  sign.one_bit_decode = OneBitDecode<false>;
  sign.one_bit_decode_add = OneBitDecode<true>;
  sign.count_pack = CountPack;
  sign.count_decode = CountDecode;
  sign.block_encode = BlockEncode;
  sign.block_decode = BlockDecode<false>;
  sign.block_decode_add = BlockDecode<true>;
  return sign;
}

}  // namespace telegrad::kernels::cuda
