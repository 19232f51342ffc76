#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/host_device.h"

// Exact sums of W 2-bit codes (kernels/two_bit.h): integers k in [-W, W].
//
// Packed sums, "bit planes": elements go in groups of 32; a group is `bits`
// little-endian uint32 words; bit j of word p is bit p of (k + W) of element
// 32*group + j. Elements past n are stored as 0 bits in every plane.
// Bytes: 4 * bits * ceil(n/32), bits = ceil(log2(2W+1)).
namespace telegrad::kernels {

constexpr size_t kSumsPerGroup = 32;
constexpr uint32_t kMaxSumContributors = 32767;

// ceil(log2(2W+1)): 2 for W=1, 3 for 2 and 3, 4 for 4 to 7, 5 for 8 to 15.
TELEGRAD_HOST_DEVICE constexpr uint32_t SumBits(uint32_t num_frames) {
  uint32_t bits = 0;
  while ((uint64_t{1} << bits) < 2 * uint64_t{num_frames} + 1) ++bits;
  return bits;
}

constexpr size_t PackedSumBytes(size_t n, uint32_t num_frames) {
  return 4 * size_t{SumBits(num_frames)} *
         ((n + kSumsPerGroup - 1) / kSumsPerGroup);
}

// Adds the codes of `num_frames` frames (1 to kMaxSumContributors) and packs
// the sums. frames: `num_frames` pointers to TwoBitBytes(n) bytes each; for a
// GPU the array of pointers itself is in host memory. Order of frames does not
// matter. Alias: no. packed: PackedSumBytes(n, num_frames).
using TwoBitSumPackFn = void(const uint8_t* const* frames, uint32_t num_frames,
                             size_t n, uint8_t* packed, Stream stream);

// out[i] = float(k) * threshold, one rounding; +0 for k = 0.
using PackedSumDecodeFn = void(const uint8_t* packed, uint32_t num_frames,
                               size_t n, float threshold, float* out,
                               Stream stream);

// Adds the codes of `num_frames` frames to the server's residual and encodes
// the result again with the quantum q (both in units of the push threshold,
// shifted left by `shift` bits, so that residuals outlive a smaller threshold):
//   v = residual[i] + (k << shift)
//   v >= q: code 11, residual[i] = v - q;  v <= -q: code 10, residual[i] = v+q
//   else code 00, residual[i] = v
// Shapes: residual [n] i32; codes TwoBitBytes(n). q > 0, 0 <= shift <= 14.
// |residual| < 2^30 is the caller's duty; it holds while q >= W << shift.
using TwoBitReencodeFn = void(const uint8_t* const* frames, uint32_t num_frames,
                              size_t n, int32_t* residual, uint32_t shift,
                              int32_t quantum, uint8_t* codes, Stream stream);

// The residuals of TwoBitReencodeFn in other units, 2^bits times as fine:
//   bits > 0: residual[i] * 2^bits, at most kMaxRefinedResidual in size
//   bits < 0: residual[i] / 2^-bits, to nearest, halves up
// Shape: residual [n] i32.
constexpr int32_t kMaxRefinedResidual = int32_t{1} << 28;
using RescaleUnitsFn = void(int32_t* residual, size_t n, int bits,
                            Stream stream);

// One of them. C++17 and CUDA.
TELEGRAD_HOST_DEVICE inline int32_t RescaledUnit(int32_t residual, int bits) {
  if (bits < 0) {
    const int shift = bits < -31 ? 31 : -bits;
    const int64_t half = int64_t{1} << (shift - 1);
    return static_cast<int32_t>((int64_t{residual} + half) >> shift);
  }
  const int64_t wide =
      int64_t{residual} * (int64_t{1} << (bits > 30 ? 30 : bits));
  return static_cast<int32_t>(wide > kMaxRefinedResidual ? kMaxRefinedResidual
                              : wide < -kMaxRefinedResidual
                                  ? -kMaxRefinedResidual
                                  : wide);
}

// out[i] = float(k) * threshold: like sum-pack followed by decode.
using TwoBitSumDecodeFn = void(const uint8_t* const* frames,
                               uint32_t num_frames, size_t n, float threshold,
                               float* out, Stream stream);

}  // namespace telegrad::kernels
