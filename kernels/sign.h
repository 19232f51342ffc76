#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"
#include "kernels/two_bit.h"

// One bit per element: element i is bit 7 - i%8 of byte i/8; 1 is +magnitude,
// 0 is -magnitude; n bits in 4*ceil(n/32) bytes, unused bits 0. Payloads lie
// at any address. Encoders count n, or what is said, as num_nonzero; `stats`
// is added to, as in two_bit.h. Alias: no. Deterministic: yes, equal
// everywhere.
// kZero: where v is not finite, the element is counted (index within this
// call), and v = residual[i] + 0 instead, or 0 where that is not finite
// either. kPropagate counts nothing.
namespace telegrad::kernels {

constexpr size_t kSignsPerWord = 32;

constexpr size_t SignBytes(size_t n) {
  return 4 * ((n + kSignsPerWord - 1) / kSignsPerWord);
}

// MXNet's 1-bit (apache/mxnet#17952, `quantize_1bit`): one magnitude, 1 in
// gradients; the payload is the bits followed by the magnitude as f32.
constexpr size_t OneBitBytes(size_t n) { return SignBytes(n) + 4; }

// v = residual[i] + grad[i]
// v > threshold: bit 1, residual[i] = v - magnitude    (strict)
// else:          bit 0, residual[i] = v + magnitude
// Shapes: grad, residual [n] f32; payload OneBitBytes(n). threshold and
// magnitude finite. Cost: 12.125 bytes per element.
using OneBitEncodeFn = void(const float* grad, float* residual, size_t n,
                            float threshold, float magnitude,
                            NonFinite nonfinite, uint8_t* payload,
                            EncodeStats* stats, Stream stream);

// out[i] = +-magnitude; decode-add: out[i] += +-magnitude.
using OneBitDecodeFn = void(const uint8_t* payload, size_t n, float* out,
                            Stream stream);

// Exact sums of W payloads of magnitude 1: the number of ones, 0 to W, in
// ceil(log2(W+1)) planes one after the other; plane p holds bit p of the
// counts, in the order and size of the bits of a payload. Unused bits are
// counted as the others.
constexpr uint32_t SignCountPlanes(uint32_t num_frames) {
  uint32_t planes = 0;
  while (num_frames >> planes != 0) ++planes;
  return planes;
}
constexpr size_t SignCountBytes(size_t n, uint32_t num_frames) {
  return SignCountPlanes(num_frames) * SignBytes(n);
}

// frames: `num_frames` (1 to kMaxSumContributors) pointers to payloads, whose
// magnitudes are not looked at; for a GPU the array of pointers is in host
// memory. counts: SignCountBytes(n, num_frames).
using SignCountPackFn = void(const uint8_t* const* frames, uint32_t num_frames,
                             size_t n, uint8_t* counts, Stream stream);

// out[i] = 2 * count - num_frames, of any bytes.
using SignCountDecodeFn = void(const uint8_t* counts, uint32_t num_frames,
                               size_t n, float* out, Stream stream);

// Signs with a scale per block (docs/codecs.md, onebit): the payload is
// ceil(n/block) scales f32, then the bits of all blocks.
constexpr size_t kSignBlockStep = 128;  // blocks are multiples of it
constexpr size_t kMaxSignBlock = 8192;
constexpr size_t kSignLanes = 1024;
constexpr size_t NumSignBlocks(size_t n, size_t block) {
  return (n + block - 1) / block;
}
constexpr size_t BlockSignBytes(size_t n, size_t block) {
  return 4 * NumSignBlocks(n, block) + SignBytes(n);
}

// Per block of m elements (the last may have fewer than `block`), with
// v = residual[i] + grad[i]:
//   scale = sum |v| / m in float32, or the largest float where that is not
//           finite
//   v >= 0: bit 1, residual[i] = v - scale; else bit 0, residual[i] = v + scale
// The sum has 1024 lanes: lane l adds elements l, l + 1024, ... of the block in
// this order, from 0 on; then for h = 512, 256 ... 1 lane l < h adds lane l +
// h. Counts as num_nonzero the elements of blocks whose scale is not 0. Shapes:
// grad, residual [n] f32; payload BlockSignBytes(n, block); block a multiple of
// kSignBlockStep, at most kMaxSignBlock. Cost: 12.125 bytes per element.
using BlockSignEncodeFn = void(const float* grad, float* residual, size_t n,
                               size_t block, NonFinite nonfinite,
                               uint8_t* payload, EncodeStats* stats,
                               Stream stream);

// out[i] = +-scale; decode-add: out[i] += +-scale.
using BlockSignDecodeFn = void(const uint8_t* payload, size_t n, size_t block,
                               float* out, Stream stream);

struct SignKernels {
  OneBitEncodeFn* one_bit_encode = nullptr;
  OneBitDecodeFn* one_bit_decode = nullptr;
  OneBitDecodeFn* one_bit_decode_add = nullptr;
  SignCountPackFn* count_pack = nullptr;
  SignCountDecodeFn* count_decode = nullptr;
  BlockSignEncodeFn* block_encode = nullptr;
  BlockSignDecodeFn* block_decode = nullptr;
  BlockSignDecodeFn* block_decode_add = nullptr;
};

}  // namespace telegrad::kernels
