#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/two_bit.h"

// A thread takes 16 bytes of the gradient at a time, four elements or eight, 16
// bytes of other arrays, and the bytes of their codes, which no other thread
// writes.
namespace telegrad::kernels::cuda {
namespace {

// Encodes v = r + g of elements [i, i + 4), whose codes it returns; r becomes
// the residual.
template <bool kZeroNonFinite>
__device__ inline uint32_t Quantize4(const float* g, size_t i, float threshold,
                                     float (&r)[4], Tally& tally) {
  uint32_t byte = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float v = r[j] + g[j];
    if (kZeroNonFinite && !IsFinite(v)) {
      ++tally.num_nonfinite;
      if (i + j < tally.first_nonfinite) tally.first_nonfinite = i + j;
      v = r[j] + 0.0f;
    }
    const bool is_positive = v >= threshold;
    const bool is_negative = v <= -threshold;
    byte = byte << 2 | (is_positive ? 3u : is_negative ? 2u : 0u);
    tally.num_nonzero += is_positive || is_negative;
    r[j] = is_positive ? v - threshold : is_negative ? v + threshold : v;
  }
  return byte;
}

// Encodes as thread number `thread` of `num_threads`. num_bytes is a multiple
// of 4, so that threads of two bytes share none.
template <class Grad, bool kVector, bool kZeroNonFinite>
__device__ inline void EncodePart(
    const typename Grad::Element* __restrict__ grad,
    float* __restrict__ residual, size_t n, float threshold,
    uint8_t* __restrict__ codes, size_t num_bytes, size_t thread,
    size_t num_threads, Tally& tally) {
  constexpr int kBytes = Grad::kPerAccess / 4;
  for (size_t b = kBytes * thread; b < num_bytes; b += kBytes * num_threads) {
    float g[Grad::kPerAccess];
    float r[kBytes][4];
    Grad::template Load<kVector>(grad, 4 * b, n, g);
#pragma unroll
    for (int k = 0; k < kBytes; ++k) {
      Load4<kVector>(residual, 4 * (b + k), n, r[k]);
    }
#pragma unroll
    for (int k = 0; k < kBytes; ++k) {
      const size_t i = 4 * (b + k);
      const uint32_t byte =
          Quantize4<kZeroNonFinite>(g + 4 * k, i, threshold, r[k], tally);
      Store4<kVector>(r[k], i, n, residual);
      codes[b + k] = static_cast<uint8_t>(byte);
    }
  }
}

template <class Grad, bool kVector, bool kZeroNonFinite>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    EncodeKernel(const typename Grad::Element* __restrict__ grad,
                 float* __restrict__ residual, size_t n, float threshold,
                 uint8_t* __restrict__ codes, size_t num_bytes,
                 EncodeStats* stats) {
  Tally tally;
  EncodePart<Grad, kVector, kZeroNonFinite>(grad, residual, n, threshold, codes,
                                            num_bytes, GlobalThread(),
                                            NumThreads(), tally);
  AddStats(tally, stats);
}

template <class Grad>
struct EncodeTile {
  using Counts = Tally;
  static constexpr unsigned kBlocks =
      sizeof(typename Grad::Element) == 4 ? kManyBlocks : kManyBlocks - 1;
  template <bool kVector, bool kZeroNonFinite>
  static __device__ void Encode(const EncodeBatch&, const Tile& tile,
                                Tally& tally) {
    const size_t num_bytes = (tile.n + kCodesPerWord - 1) / kCodesPerWord * 4;
    EncodePart<Grad, kVector, kZeroNonFinite>(
        static_cast<const typename Grad::Element*>(tile.grad) + tile.begin,
        tile.residual + tile.begin, tile.n, tile.span->threshold,
        tile.codes + tile.begin / 4, num_bytes, threadIdx.x, blockDim.x, tally);
  }
};

template <class Grad>
void LaunchEncode(const typename Grad::Element* grad, float* residual, size_t n,
                  float threshold, NonFinite nonfinite, uint8_t* codes,
                  EncodeStats* stats, Stream stream) {
  if (n == 0) return;
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel = is_vector ? (is_zero ? EncodeKernel<Grad, true, true>
                                            : EncodeKernel<Grad, true, false>)
                                 : (is_zero ? EncodeKernel<Grad, false, true>
                                            : EncodeKernel<Grad, false, false>);
  const size_t num_bytes = TwoBitBytes(n);
  kernel<<<GridFor(4 * num_bytes / Grad::kPerAccess), kThreads, 0,
           StreamOf(stream)>>>(grad, residual, n, threshold, codes, num_bytes,
                               stats);
}

// Elements [4 * b, 4 * b + 4) of byte b.
__device__ inline void Values4(uint32_t byte, float threshold,
                               float (&values)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t code = byte >> (6 - 2 * j) & 3u;
    values[j] = code == 3u ? threshold : code == 2u ? -threshold : 0.0f;
  }
}

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DecodeKernel(const uint8_t* __restrict__ codes, size_t n, float threshold,
                 float* __restrict__ out) {
  const size_t num_bytes = (n + 3) / 4;
  for (size_t b = GlobalThread(); b < num_bytes; b += NumThreads()) {
    float values[4];
    Values4(codes[b], threshold, values);
    if (kAdd) {
      float sums[4];
      Load4<kVector>(out, 4 * b, n, sums);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] = sums[j] + values[j];
    }
    Store4<kVector>(values, 4 * b, n, out);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  const uint8_t* const codes = tile.codes + tile.begin / 4;
  const DecodeOut out = tile.out.From(tile.begin);
  // Values are this, its negative or 0: scaled before or after they are the
  // same.
  const float threshold = tile.Scaled(tile.span->threshold);
  for (size_t i = 4 * threadIdx.x; i < tile.n; i += 4 * blockDim.x) {
    float values[4];
    Values4(codes[i / 4], threshold, values);
    out.Store<kVector>(values, i, tile.n);
  }
}

template <bool kAdd>
void LaunchDecode(const uint8_t* codes, size_t n, float threshold, float* out,
                  Stream stream) {
  if (n == 0) return;
  const unsigned grid = GridFor((n + 3) / 4);
  if (IsAligned(out, 16)) {
    DecodeKernel<true, kAdd>
        <<<grid, kThreads, 0, StreamOf(stream)>>>(codes, n, threshold, out);
  } else {
    DecodeKernel<false, kAdd>
        <<<grid, kThreads, 0, StreamOf(stream)>>>(codes, n, threshold, out);
  }
}

}  // namespace

void TwoBitEncode(const float* grad, float* residual, size_t n, float threshold,
                  NonFinite nonfinite, uint8_t* codes, EncodeStats* stats,
                  Stream stream) {
  LaunchEncode<OfFloat32>(grad, residual, n, threshold, nonfinite, codes, stats,
                          stream);
}

void TwoBitEncodeFp16(const uint16_t* grad, float* residual, size_t n,
                      float threshold, NonFinite nonfinite, uint8_t* codes,
                      EncodeStats* stats, Stream stream) {
  LaunchEncode<OfFp16>(grad, residual, n, threshold, nonfinite, codes, stats,
                       stream);
}

void TwoBitEncodeBf16(const uint16_t* grad, float* residual, size_t n,
                      float threshold, NonFinite nonfinite, uint8_t* codes,
                      EncodeStats* stats, Stream stream) {
  LaunchEncode<OfBf16>(grad, residual, n, threshold, nonfinite, codes, stats,
                       stream);
}

void TwoBitDecode(const uint8_t* codes, size_t n, float threshold, float* out,
                  Stream stream) {
  LaunchDecode<false>(codes, n, threshold, out, stream);
}

void TwoBitDecodeAdd(const uint8_t* codes, size_t n, float threshold,
                     float* sum, Stream stream) {
  LaunchDecode<true>(codes, n, threshold, sum, stream);
}

void TwoBitDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, DecodeManyKernel<true>, DecodeManyKernel<false>, stream);
}

void TwoBitEncodeMany(const EncodeBatch& batch, Stream stream) {
  EncodeMany<EncodeTile<OfFloat32>>(batch, stream);
}
void TwoBitEncodeManyFp16(const EncodeBatch& batch, Stream stream) {
  EncodeMany<EncodeTile<OfFp16>>(batch, stream);
}
void TwoBitEncodeManyBf16(const EncodeBatch& batch, Stream stream) {
  EncodeMany<EncodeTile<OfBf16>>(batch, stream);
}

}  // namespace telegrad::kernels::cuda
