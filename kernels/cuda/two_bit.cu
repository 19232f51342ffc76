#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/two_bit.h"

// A thread takes four elements at a time: 16 bytes of each array, and the one
// byte of codes, which no other thread writes.
namespace telegrad::kernels::cuda {
namespace {

template <bool kVector, bool kZeroNonFinite>
__global__ void __launch_bounds__(kThreads)
    EncodeKernel(const float* __restrict__ grad, float* __restrict__ residual,
                 size_t n, float threshold, uint8_t* __restrict__ codes,
                 size_t num_bytes, EncodeStats* stats) {
  uint32_t num_nonzero = 0;
  uint32_t num_nonfinite = 0;
  uint64_t first_nonfinite = kNoIndex;
  for (size_t b = GlobalThread(); b < num_bytes; b += NumThreads()) {
    const size_t i = 4 * b;
    float g[4];
    float r[4];
    Load4<kVector>(grad, i, n, g);
    Load4<kVector>(residual, i, n, r);
    uint32_t byte = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float v = r[j] + g[j];
      if (kZeroNonFinite && !IsFinite(v)) {
        ++num_nonfinite;
        if (i + j < first_nonfinite) first_nonfinite = i + j;
        v = r[j] + 0.0f;
      }
      const bool is_positive = v >= threshold;
      const bool is_negative = v <= -threshold;
      byte = byte << 2 | (is_positive ? 3u : is_negative ? 2u : 0u);
      num_nonzero += is_positive || is_negative;
      r[j] = is_positive ? v - threshold : is_negative ? v + threshold : v;
    }
    Store4<kVector>(r, i, n, residual);
    codes[b] = static_cast<uint8_t>(byte);
  }
  AddStats(num_nonzero, num_nonfinite, first_nonfinite, stats);
}

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads)
    DecodeKernel(const uint8_t* __restrict__ codes, size_t n, float threshold,
                 float* __restrict__ out) {
  const size_t num_bytes = (n + 3) / 4;
  for (size_t b = GlobalThread(); b < num_bytes; b += NumThreads()) {
    const uint32_t byte = codes[b];
    float values[4] = {};
    if (kAdd) Load4<kVector>(out, 4 * b, n, values);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t code = byte >> (6 - 2 * j) & 3u;
      const float value = code == 3u   ? threshold
                          : code == 2u ? -threshold
                                       : 0.0f;
      values[j] = kAdd ? values[j] + value : value;
    }
    Store4<kVector>(values, 4 * b, n, out);
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
  if (n == 0) return;
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel =
      is_vector
          ? (is_zero ? EncodeKernel<true, true> : EncodeKernel<true, false>)
          : (is_zero ? EncodeKernel<false, true> : EncodeKernel<false, false>);
  kernel<<<GridFor(TwoBitBytes(n)), kThreads, 0, StreamOf(stream)>>>(
      grad, residual, n, threshold, codes, TwoBitBytes(n), stats);
}

void TwoBitDecode(const uint8_t* codes, size_t n, float threshold, float* out,
                  Stream stream) {
  LaunchDecode<false>(codes, n, threshold, out, stream);
}

void TwoBitDecodeAdd(const uint8_t* codes, size_t n, float threshold,
                     float* sum, Stream stream) {
  LaunchDecode<true>(codes, n, threshold, sum, stream);
}

}  // namespace telegrad::kernels::cuda
