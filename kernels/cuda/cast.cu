#include "kernels/cast.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.h"

// A thread takes four elements at a time: 16 bytes of floats, 8 of codes.
namespace telegrad::kernels::cuda {
namespace {

constexpr uint32_t kInfinity = 0x7F800000;

struct Fp16 : Fp16Format {
  static __device__ uint32_t Cast(float value) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= kInfinity) {
      return magnitude == kInfinity ? sign | 0x7C00u : 0x7E00u;
    }
    const float finite = __uint_as_float(min(magnitude, 0x477FE000u));
    return sign | __half_as_ushort(__float2half_rn(finite));
  }
};

struct Bf16 : Bf16Format {
  static __device__ uint32_t Cast(float value) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= kInfinity) {
      return magnitude == kInfinity ? sign | 0x7F80u : 0x7FC0u;
    }
    const uint32_t finite = min(magnitude, 0x7F7F0000u);
    return sign | (finite + 0x7FFFu + (finite >> 16 & 1u)) >> 16;
  }
};

// Codes [i, i + 4), as Load4 and Store4 do it.
template <bool kVector>
__device__ inline void LoadCodes(const uint8_t* codes, size_t i, size_t n,
                                 uint32_t (&to)[4]) {
  if (kVector && i + 4 <= n) {
    const uint2 words = *reinterpret_cast<const uint2*>(codes + 2 * i);
    to[0] = words.x & 0xFFFFu;
    to[1] = words.x >> 16;
    to[2] = words.y & 0xFFFFu;
    to[3] = words.y >> 16;
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint8_t* at = codes + 2 * (i + j);
    to[j] = i + j < n ? at[0] | static_cast<uint32_t>(at[1]) << 8 : 0;
  }
}

template <bool kVector>
__device__ inline void StoreCodes(const uint32_t (&from)[4], size_t i, size_t n,
                                  uint8_t* codes) {
  if (kVector && i + 4 <= n) {
    *reinterpret_cast<uint2*>(codes + 2 * i) =
        make_uint2(from[0] | from[1] << 16, from[2] | from[3] << 16);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (i + j >= n) continue;
    codes[2 * (i + j)] = static_cast<uint8_t>(from[j]);
    codes[2 * (i + j) + 1] = static_cast<uint8_t>(from[j] >> 8);
  }
}

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
    StoreCodes<kVector>(code, i, n, codes);
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
    LoadCodes<kVector>(codes, i, n, code);
    if (kAdd) Load4<kVector>(out, i, n, values);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float value = Format::Float(code[j]);
      values[j] = kAdd ? values[j] + value : value;
    }
    Store4<kVector>(values, i, n, out);
  }
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
  EncodeMany<EncodeTile<Fp16>>(batch, stream);
}
void CastManyBf16(const EncodeBatch& batch, Stream stream) {
  EncodeMany<EncodeTile<Bf16>>(batch, stream);
}

CastKernels Cast() { return {Kernels<Fp16>(), Kernels<Bf16>()}; }

}  // namespace telegrad::kernels::cuda
