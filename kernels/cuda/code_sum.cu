#include "kernels/code_sum.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/planes.cuh"
#include "kernels/two_bit.h"

namespace telegrad::kernels::cuda {
namespace {

// Where this warp's tiles begin, and how far apart they are.
__device__ inline size_t FirstTile() { return GlobalThread() / kWarp; }
__device__ inline size_t TileStride() { return NumThreads() / kWarp; }

// A pass after the first adds its sums to those that `packed` holds; elements
// past n are 0 in both.
template <int kPlanes>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SumPackKernel(const __grid_constant__ Pass pass, size_t n, uint32_t bits,
                  uint8_t* packed) {
  __shared__ uint32_t staged[kWarps][kWarp * kMaxPlanes];
  uint32_t* const words = staged[threadIdx.x / kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const size_t num_groups = (n + kSumsPerGroup - 1) / kSumsPerGroup;
  for (size_t tile = FirstTile(); tile * kTileGroups < num_groups;
       tile += TileStride()) {
    const size_t group = tile * kTileGroups + lane;
    if (group < num_groups) {
      uint32_t planes[kPlanes];
      SumGroup(pass, group, n, planes);
      const size_t left = n - group * kSumsPerGroup;
      const uint32_t keep =
          left >= kSumsPerGroup ? 0xFFFFFFFFu : (1u << left) - 1;
      uint32_t carry = 0;
#pragma unroll
      for (uint32_t p = 0; p < kMaxPlanes; ++p) {
        if (p >= bits) break;
        uint32_t word = p < kPlanes ? ElementOrder(planes[p]) & keep : 0;
        if (!pass.is_first) {
          const uint32_t old = LoadWord(packed, group * bits + p);
          const uint32_t next = (old & word) | (old & carry) | (word & carry);
          word ^= old ^ carry;
          carry = next;
        }
        words[lane * bits + p] = word;
      }
    }
    __syncwarp();
    const size_t groups_left = num_groups - tile * kTileGroups;
    const size_t num_words =
        bits * (groups_left < kTileGroups ? groups_left : kTileGroups);
    for (size_t w = lane; w < num_words; w += kWarp) {
      StoreWord(words[w], tile * kTileGroups * bits + w, packed);
    }
    __syncwarp();
  }
}

// A warp's tile, by way of `words` [kWarp * bits] of its shared memory.
template <bool kVector>
__device__ inline void DecodePacked(const uint8_t* __restrict__ packed,
                                    uint32_t num_frames, uint32_t bits,
                                    size_t n, float threshold, float scale,
                                    const DecodeOut& out, size_t tile,
                                    uint32_t* words) {
  const unsigned lane = threadIdx.x % kWarp;
  const size_t num_words = bits * ((n + kSumsPerGroup - 1) / kSumsPerGroup);
  const size_t first = tile * kTileGroups * bits;
  for (size_t w = lane; w < kWarp * bits && first + w < num_words; w += kWarp) {
    words[w] = LoadWord(packed, first + w);
  }
  __syncwarp();
#pragma unroll
  for (unsigned q = 0; q < 8; ++q) {
    const size_t i = tile * kTile + q * 128 + 4 * lane;
    if (i >= n) break;
    int values[4];
    ValuesOf4<false>(words + (4 * q + lane / 8) * bits, bits, lane, values);
    float decoded[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      decoded[j] =
          static_cast<float>(values[j] - static_cast<int>(num_frames)) *
          threshold * scale;
    }
    out.Store<kVector>(decoded, i, n);
  }
  __syncwarp();
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    PackedDecodeKernel(const uint8_t* __restrict__ packed, uint32_t num_frames,
                       uint32_t bits, size_t n, float threshold,
                       float* __restrict__ out) {
  __shared__ uint32_t staged[kWarps][kWarp * kMaxPlanes];
  for (size_t tile = FirstTile(); tile * kTile < n; tile += TileStride()) {
    DecodePacked<kVector>(packed, num_frames, bits, n, threshold, 1, OutOf(out),
                          tile, staged[threadIdx.x / kWarp]);
  }
}

static_assert(kDecodeTile == kWarps * kTile, "a tile for each warp");

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    PackedDecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  __shared__ uint32_t staged[kWarps][kWarp * kMaxPlanes];
  const DecodeTile tile = TileOf(batch);
  const uint32_t bits = SumBits(batch.num_frames);
  const unsigned warp = threadIdx.x / kWarp;
  if (warp * kTile >= tile.n) return;
  DecodePacked<kVector>(tile.codes + 4 * bits * (tile.begin / kSumsPerGroup),
                        batch.num_frames, bits, tile.n, tile.span->threshold,
                        tile.span->scale, tile.out.From(tile.begin), warp,
                        staged[warp]);
}

// Between passes `out` holds the sums so far, which a float does exactly.
template <int kPlanes, bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SumDecodeKernel(const __grid_constant__ Pass pass, size_t n,
                    float threshold, float* __restrict__ out) {
  __shared__ uint32_t staged[kWarps][kWarp * kPlanes];
  uint32_t* const words = staged[threadIdx.x / kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const size_t num_groups = (n + kSumsPerGroup - 1) / kSumsPerGroup;
  for (size_t tile = FirstTile(); tile * kTile < n; tile += TileStride()) {
    const size_t group = tile * kTileGroups + lane;
    if (group < num_groups) {
      uint32_t planes[kPlanes];
      SumGroup(pass, group, n, planes);
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) words[lane * kPlanes + p] = planes[p];
    }
    __syncwarp();
    for (unsigned q = 0; q < 8; ++q) {
      const size_t i = tile * kTile + q * 128 + 4 * lane;
      if (i >= n) break;
      int values[4];
      ValuesOf4<true>(words + (4 * q + lane / 8) * kPlanes, kPlanes, lane,
                      values);
      float sums[4] = {};
      if (!pass.is_first) Load4<kVector>(out, i, n, sums);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[j] +=
            static_cast<float>(values[j] - static_cast<int>(pass.num_frames));
        if (pass.is_last) sums[j] *= threshold;
      }
      Store4<kVector>(sums, i, n, out);
    }
    __syncwarp();
  }
}

// A pass before the last only adds its sums to the residual.
template <int kPlanes, bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    ReencodeKernel(const __grid_constant__ Pass pass, size_t n, Quantum quantum,
                   int32_t* __restrict__ residual, uint8_t* __restrict__ codes,
                   size_t num_bytes) {
  __shared__ uint32_t staged[kWarps][kWarp * kPlanes];
  uint32_t* const words = staged[threadIdx.x / kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const size_t num_groups = (n + kSumsPerGroup - 1) / kSumsPerGroup;
  for (size_t tile = FirstTile(); tile * kTile < n; tile += TileStride()) {
    const size_t group = tile * kTileGroups + lane;
    if (group < num_groups) {
      uint32_t planes[kPlanes];
      SumGroup(pass, group, n, planes);
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) words[lane * kPlanes + p] = planes[p];
    }
    __syncwarp();
    for (unsigned q = 0; q < 8; ++q) {
      const size_t i = tile * kTile + q * 128 + 4 * lane;
      if (i / 4 >= num_bytes) break;
      int values[4] = {};
      // Bytes that fill up the last word have no group's sums.
      if (i < n) {
        ValuesOf4<true>(words + (4 * q + lane / 8) * kPlanes, kPlanes, lane,
                        values);
      }
      int32_t r[4];
      Load4<kVector>(residual, i, n, r);
      uint32_t byte = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int k = i < n ? values[j] - static_cast<int>(pass.num_frames) : 0;
        const int sign = ReencodeOne(k, pass.is_last, quantum, r[j]);
        byte = byte << 2 | (sign > 0 ? 3u : sign < 0 ? 2u : 0u);
      }
      Store4<kVector>(r, i, n, residual);
      if (pass.is_last) codes[i / 4] = static_cast<uint8_t>(byte);
    }
    __syncwarp();
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    RescaleKernel(int32_t* residual, size_t n, int bits) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    int32_t r[4];
    Load4<kVector>(residual, i, n, r);
#pragma unroll
    for (int j = 0; j < 4; ++j) r[j] = RescaledUnit(r[j], bits);
    Store4<kVector>(r, i, n, residual);
  }
}

// Calls launch(pass, planes) for kFramesPerPass frames at a time, in stream
// order; `planes` is a constant as wide as the pass may need.
template <int kPlanes>
struct Planes {
  static constexpr int kValue = kPlanes;
};
template <typename Launch>
void ForEachPass(const uint8_t* const* frames, uint32_t num_frames,
                 Launch launch) {
  for (uint32_t done = 0; done < num_frames; done += kFramesPerPass) {
    Pass pass = {};
    const uint32_t left = num_frames - done;
    pass.num_frames = left < kFramesPerPass ? left : kFramesPerPass;
    for (uint32_t f = 0; f < pass.num_frames; ++f) {
      pass.frames[f] = frames[done + f];
    }
    pass.is_first = done == 0;
    pass.is_last = left <= kFramesPerPass;
    switch (SumBits(pass.num_frames)) {
      case 2:
        launch(pass, Planes<2>());
        break;
      case 3:
        launch(pass, Planes<3>());
        break;
      case 4:
        launch(pass, Planes<4>());
        break;
      case 5:
        launch(pass, Planes<5>());
        break;
      default:
        launch(pass, Planes<kMaxPassPlanes>());
    }
  }
}

// A thread for each group.
unsigned GridForSums(size_t n) {
  return GridFor((n + kSumsPerGroup - 1) / kSumsPerGroup);
}

}  // namespace

void TwoBitSumPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                   uint8_t* packed, Stream stream) {
  if (n == 0) return;
  ForEachPass(frames, num_frames, [=](const Pass& pass, auto planes) {
    SumPackKernel<decltype(planes)::kValue>
        <<<GridForSums(n), kThreads, 0, StreamOf(stream)>>>(
            pass, n, SumBits(num_frames), packed);
  });
}

void PackedSumDecode(const uint8_t* packed, uint32_t num_frames, size_t n,
                     float threshold, float* out, Stream stream) {
  if (n == 0) return;
  auto* const kernel =
      IsAligned(out, 16) ? PackedDecodeKernel<true> : PackedDecodeKernel<false>;
  kernel<<<GridForSums(n), kThreads, 0, StreamOf(stream)>>>(
      packed, num_frames, SumBits(num_frames), n, threshold, out);
}

void PackedSumDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, PackedDecodeManyKernel<true>,
                PackedDecodeManyKernel<false>, stream);
}

void TwoBitReencode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                    int32_t* residual, uint32_t shift, int32_t quantum,
                    uint8_t* codes, Stream stream) {
  if (n == 0) return;
  ForEachPass(frames, num_frames, [=](const Pass& pass, auto planes) {
    constexpr int kPlanes = decltype(planes)::kValue;
    auto* const kernel = IsAligned(residual, 16)
                             ? ReencodeKernel<kPlanes, true>
                             : ReencodeKernel<kPlanes, false>;
    kernel<<<GridForSums(n), kThreads, 0, StreamOf(stream)>>>(
        pass, n, Quantum{shift, quantum}, residual, codes, TwoBitBytes(n));
  });
}

void RescaleUnits(int32_t* residual, size_t n, int bits, Stream stream) {
  if (n == 0) return;
  auto* const kernel =
      IsAligned(residual, 16) ? RescaleKernel<true> : RescaleKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(residual, n,
                                                                  bits);
}

void TwoBitSumDecode(const uint8_t* const* frames, uint32_t num_frames,
                     size_t n, float threshold, float* out, Stream stream) {
  if (n == 0) return;
  ForEachPass(frames, num_frames, [=](const Pass& pass, auto planes) {
    constexpr int kPlanes = decltype(planes)::kValue;
    auto* const kernel = IsAligned(out, 16) ? SumDecodeKernel<kPlanes, true>
                                            : SumDecodeKernel<kPlanes, false>;
    kernel<<<GridForSums(n), kThreads, 0, StreamOf(stream)>>>(pass, n,
                                                              threshold, out);
  });
}

}  // namespace telegrad::kernels::cuda
