#include "kernels/cast.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.h"

// A thread takes four elements at a time: 16 bytes of floats, 8 of codes.
namespace telegrad::kernels::cuda {
namespace {

// Encodes as thread number `thread` of `num_threads`.
template <typename Format, bool kVector, bool kHasResidual>
__device__ inline void EncodePart(const float* __restrict__ grad,
                                  float* __restrict__ residual, size_t n,
                                  bool is_zero, uint8_t* __restrict__ codes,
                                  size_t thread, size_t num_threads,
                                  Tally& tally) {
  for (size_t i = 4 * thread; i < n; i += 4 * num_threads) {
    float g[4];
    float r[4] = {};
    uint32_t code[4];
    Load4<kVector>(grad, i, n, g);
    if (kHasResidual) Load4<kVector>(residual, i, n, r);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float v = kHasResidual ? r[j] + g[j] : g[j];
      if (is_zero && !IsFinite(v)) {
        ++tally.num_nonfinite;
        if (i + j < tally.first_nonfinite) tally.first_nonfinite = i + j;
        v = IsFinite(r[j]) ? r[j] + 0.0f : 0.0f;
      }
      code[j] = Format::Cast(v);
      tally.num_nonzero += (code[j] & 0x7FFFu) != 0;
      r[j] = v - Format::Float(code[j]);
    }
    if (kHasResidual) Store4<kVector>(r, i, n, residual);
    StoreHalves<kVector>(code, i, n, codes);
  }
}

template <typename Format, bool kVector, bool kHasResidual>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    EncodeKernel(const float* __restrict__ grad, float* __restrict__ residual,
                 size_t n, NonFinite nonfinite, uint8_t* __restrict__ codes,
                 EncodeStats* stats) {
  Tally tally;
  EncodePart<Format, kVector, kHasResidual>(
      grad, residual, n, nonfinite == NonFinite::kZero, codes, GlobalThread(),
      NumThreads(), tally);
  AddStats(tally, stats);
}

template <typename Format>
struct EncodeTile {
  using Counts = Tally;
  static constexpr unsigned kBlocks = kManyBlocks - 1;
  template <bool kVector, bool kZeroNonFinite>
  static __device__ void Encode(const EncodeBatch&, const Tile& tile,
                                Tally& tally) {
    const float* const grad = static_cast<const float*>(tile.grad) + tile.begin;
    uint8_t* const codes = tile.codes + 2 * tile.begin;
    if (tile.residual == nullptr) {
      EncodePart<Format, kVector, false>(grad, nullptr, tile.n, kZeroNonFinite,
                                         codes, threadIdx.x, blockDim.x, tally);
    } else {
      EncodePart<Format, kVector, true>(grad, tile.residual + tile.begin,
                                        tile.n, kZeroNonFinite, codes,
                                        threadIdx.x, blockDim.x, tally);
    }
  }
};

template <typename Format, bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DecodeKernel(const uint8_t* __restrict__ codes, size_t n,
                 float* __restrict__ out) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    uint32_t code[4];
    float values[4] = {};
    LoadHalves<kVector>(codes, i, n, code);
    if (kAdd) Load4<kVector>(out, i, n, values);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float value = Format::Float(code[j]);
      values[j] = kAdd ? values[j] + value : value;
    }
    Store4<kVector>(values, i, n, out);
  }
}

template <typename Format, bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  const uint8_t* const codes = tile.codes + 2 * tile.begin;
  const DecodeOut out = tile.out.From(tile.begin);
  for (size_t i = 4 * threadIdx.x; i < tile.n; i += 4 * blockDim.x) {
    uint32_t code[4];
    float values[4];
    LoadHalves<kVector>(codes, i, tile.n, code);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = tile.Scaled(Format::Float(code[j]));
    out.Store<kVector>(values, i, tile.n);
  }
}

template <typename Format>
void DecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, DecodeManyKernel<Format, true>,
                DecodeManyKernel<Format, false>, stream);
}

template <typename Format>
void Encode(const float* grad, float* residual, size_t n, NonFinite nonfinite,
            uint8_t* codes, EncodeStats* stats, Stream stream) {
  if (n == 0) return;
  const bool is_vector =
      IsAligned(grad, 16) && IsAligned(residual, 16) && IsAligned(codes, 8);
  auto* const kernel = residual != nullptr
                           ? (is_vector ? EncodeKernel<Format, true, true>
                                        : EncodeKernel<Format, false, true>)
                           : (is_vector ? EncodeKernel<Format, true, false>
                                        : EncodeKernel<Format, false, false>);
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      grad, residual, n, nonfinite, codes, stats);
}

template <typename Format, bool kAdd>
void Decode(const uint8_t* codes, size_t n, float* out, Stream stream) {
  if (n == 0) return;
  auto* const kernel = IsAligned(codes, 8) && IsAligned(out, 16)
                           ? DecodeKernel<Format, true, kAdd>
                           : DecodeKernel<Format, false, kAdd>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(codes, n,
                                                                  out);
}

template <typename Format>
CastFormatKernels Kernels() {
  return {Encode<Format>, Decode<Format, false>, Decode<Format, true>};
}

}  // namespace

void CastManyFp16(const EncodeBatch& batch, Stream stream) {
  EncodeMany<EncodeTile<Fp16Format>>(batch, stream);
}
void CastManyBf16(const EncodeBatch& batch, Stream stream) {
  EncodeMany<EncodeTile<Bf16Format>>(batch, stream);
}

void CastDecodeManyFp16(const DecodeBatch& batch, Stream stream) {
  DecodeMany<Fp16Format>(batch, stream);
}
void CastDecodeManyBf16(const DecodeBatch& batch, Stream stream) {
  DecodeMany<Bf16Format>(batch, stream);
}

CastKernels Cast() { return {Kernels<Fp16Format>(), Kernels<Bf16Format>()}; }

}  // namespace telegrad::kernels::cuda
