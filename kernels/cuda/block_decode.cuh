#pragma once

#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/block_codes.cuh"

// Decoding and sums of block codes; a thread takes four elements at a time.
namespace telegrad::kernels::cuda {

// What a code says in scales, `odd` being how many odd codes were added.
__device__ inline float TimesTwo(int32_t code, uint32_t odd) {
  const uint32_t twice = 2 * static_cast<uint32_t>(code) + odd;
  return static_cast<float>(odd == 0 ? code : static_cast<int32_t>(twice));
}

// kAdd: onto float32.
template <bool kVector, bool kAdd>
__device__ inline void Put4(float (&values)[4], size_t i, size_t n,
                            const DecodeOut& out) {
  if (kAdd) {
    float old[4];
    Load4<kVector>(reinterpret_cast<const float*>(out.to), i, n, old);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = old[j] + values[j];
  }
  out.Store<kVector>(values, i, n);
}

// Decodes, of an array of n elements, those from `i` to `end`, every `step`-th
// four.
template <bool kVector, bool kAdd>
__device__ inline void BlockDecodePart(const uint8_t* __restrict__ payload,
                                       size_t n, const BlockFormat& format,
                                       float factor, const DecodeOut& out,
                                       size_t i, size_t end, size_t step) {
  const uint8_t* const codes = payload + ScaleBytes(n, format);
  // In units of 64 elements 32 bits are enough, and divide faster.
  const auto block = static_cast<uint32_t>(format.block / kBlockMultiple);
  for (; i < end; i += step) {
    const float scale = BlockScaleAt(
        payload, static_cast<uint32_t>(i / kBlockMultiple) / block, format);
    int32_t code[4];
    float values[4];
    LoadCodes4(codes, i, n, format.bits, code);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j] = format.natural ? NaturalValue(code[j], scale)
                                 : TimesTwo(code[j], format.odd) * scale;
      values[j] *= factor;
    }
    Put4<kVector, kAdd>(values, i, n, out);
  }
}

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    BlockDecodeKernel(const uint8_t* __restrict__ payload, size_t n,
                      BlockFormat format, float* __restrict__ out) {
  BlockDecodePart<kVector, kAdd>(payload, n, format, 1, OutOf(out),
                                 4 * GlobalThread(), n, 4 * NumThreads());
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    BlockDecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  BlockDecodePart<kVector, false>(tile.codes, tile.span->num_elems,
                                  batch.format, tile.span->scale, tile.out,
                                  tile.begin + 4 * threadIdx.x,
                                  tile.begin + tile.n, 4 * blockDim.x);
}

// As BlockDecodePart.
template <bool kVector, bool kAdd>
__device__ inline void SharedDecodePart(const uint8_t* __restrict__ codes,
                                        size_t n, uint32_t bits, uint32_t odd,
                                        float quantum, float factor,
                                        const DecodeOut& out, size_t i,
                                        size_t end, size_t step) {
  for (; i < end; i += step) {
    int32_t code[4] = {};
    if (bits <= 8) {
      LoadCodes4(codes, i, n, bits, code);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j < n) code[j] = LoadSum(codes, i + j, bits);
      }
    }
    float values[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j] = TimesTwo(code[j], odd) * quantum * factor;
    }
    Put4<kVector, kAdd>(values, i, n, out);
  }
}

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SharedDecodeKernel(const uint8_t* __restrict__ codes, size_t n,
                       uint32_t bits, uint32_t odd, float quantum,
                       float* __restrict__ out) {
  SharedDecodePart<kVector, kAdd>(codes, n, bits, odd, quantum, 1, OutOf(out),
                                  4 * GlobalThread(), n, 4 * NumThreads());
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SharedDecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  const uint32_t added = batch.num_frames == 0 ? 1 : batch.num_frames;
  SharedDecodePart<kVector, false>(
      tile.codes, tile.span->num_elems, batch.format.bits,
      batch.format.odd ? added : 0, tile.span->threshold, tile.span->scale,
      tile.out, tile.begin + 4 * threadIdx.x, tile.begin + tile.n,
      4 * blockDim.x);
}

// Frames go by value in a kernel's parameters; more take several passes, which
// add to what is in the output: sums, or their exact floats.
constexpr uint32_t kFramesPerSum = 64;
struct SumPass {
  const uint8_t* frames[kFramesPerSum];
  uint32_t num_frames;
  bool is_first;
  bool is_last;
};

__device__ inline void SumCodes4(const SumPass& pass, size_t i, size_t n,
                                 uint32_t bits, int32_t (&sum)[4]) {
  if (i >= n) return;
  for (uint32_t f = 0; f < pass.num_frames; ++f) {
    int32_t code[4];
    LoadCodes4(pass.frames[f], i, n, bits, code);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] += code[j];
  }
}

// kVector: sums are aligned to 16 bytes.
template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SumCodesKernel(const __grid_constant__ SumPass pass, size_t n,
                   uint32_t bits, uint32_t sum_bits, uint8_t* sums) {
  const size_t before = 4 * (threadIdx.x % kWarp);  // this lane, in its warp
  for (size_t i = 4 * GlobalThread(); i - before < n; i += 4 * NumThreads()) {
    int32_t sum[4] = {};
    SumCodes4(pass, i, n, bits, sum);
    if (!pass.is_first) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j < n) sum[j] += LoadSum(sums, i + j, sum_bits);
      }
    }
    StoreSums4<kVector>(sum, i, n, sum_bits, sums);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SharedSumDecodeKernel(const __grid_constant__ SumPass pass, size_t n,
                          uint32_t bits, float quantum, float* out) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    int32_t sum[4] = {};
    SumCodes4(pass, i, n, bits, sum);
    float values[4] = {};
    if (!pass.is_first) Load4<kVector>(out, i, n, values);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float total =
          values[j] + TimesTwo(sum[j], IsOdd(bits) ? pass.num_frames : 0);
      values[j] = pass.is_last ? total * quantum : total;
    }
    Store4<kVector>(values, i, n, out);
  }
}

template <typename Launch>
void ForEachSumPass(const uint8_t* const* frames, uint32_t num_frames,
                    Launch launch) {
  for (uint32_t first = 0; first < num_frames; first += kFramesPerSum) {
    SumPass pass = {};
    const uint32_t left = num_frames - first;
    pass.num_frames = left < kFramesPerSum ? left : kFramesPerSum;
    for (uint32_t f = 0; f < pass.num_frames; ++f) {
      pass.frames[f] = frames[first + f];
    }
    pass.is_first = first == 0;
    pass.is_last = left <= kFramesPerSum;
    launch(pass);
  }
}

template <bool kAdd>
void BlockDecode(const uint8_t* payload, size_t n, BlockFormat format,
                 float* out, Stream stream) {
  if (n == 0) return;
  auto* const kernel = IsAligned(out, 16) ? BlockDecodeKernel<true, kAdd>
                                          : BlockDecodeKernel<false, kAdd>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(payload, n,
                                                                  format, out);
}

template <bool kAdd>
void SharedDecode(const uint8_t* codes, size_t n, uint32_t bits, uint32_t odd,
                  float quantum, float* out, Stream stream) {
  if (n == 0) return;
  auto* const kernel = IsAligned(out, 16) ? SharedDecodeKernel<true, kAdd>
                                          : SharedDecodeKernel<false, kAdd>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      codes, n, bits, odd, quantum, out);
}

inline void SumCodes(const uint8_t* const* frames, uint32_t num_frames,
                     size_t n, uint32_t bits, uint32_t sum_bits, uint8_t* sum,
                     Stream stream) {
  if (n == 0) return;
  ForEachSumPass(frames, num_frames, [&](const SumPass& pass) {
    auto* const kernel =
        IsAligned(sum, 16) ? SumCodesKernel<true> : SumCodesKernel<false>;
    kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
        pass, n, bits, sum_bits, sum);
  });
}

inline void SharedSumDecode(const uint8_t* const* frames, uint32_t num_frames,
                            size_t n, uint32_t bits, float quantum, float* out,
                            Stream stream) {
  if (n == 0) return;
  ForEachSumPass(frames, num_frames, [&](const SumPass& pass) {
    auto* const kernel = IsAligned(out, 16) ? SharedSumDecodeKernel<true>
                                            : SharedSumDecodeKernel<false>;
    kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
        pass, n, bits, quantum, out);
  });
}

}  // namespace telegrad::kernels::cuda
