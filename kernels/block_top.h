#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/block_rules.h"
#include "kernels/encode_stats.h"
#include "kernels/host_device.h"
#include "kernels/select.h"
#include "kernels/two_bit.h"

// The largest of each block of 4,096 elements, with places of 12 bits and
// values of 2 bits by bin means, after error feedback that decays. C++17.
//
// A payload for K elements sent is four float32 levels; K places, as a
// little-endian string of 12 bits each, counted from their block's first
// element and ascending within a block; K codes, as one of 2 bits each. Unused
// bits of each string are 0.
namespace telegrad::kernels {

constexpr size_t kTopBlock = 4096;
constexpr size_t kMostTop = 512;  // in a block
constexpr uint32_t kTopBins = 4;
constexpr float kMostTopLevel = 0x1p100f;

TELEGRAD_HOST_DEVICE constexpr size_t NumTopBlocks(size_t n) {
  return (n + kTopBlock - 1) / kTopBlock;
}
// How many elements are sent of a block of `size`, where a whole one sends
// `keep`: strings of whole blocks are whole bytes.
TELEGRAD_HOST_DEVICE constexpr size_t TopOfBlock(size_t size, size_t keep) {
  const size_t share = (keep * size + 4 * kTopBlock - 1) / (4 * kTopBlock) * 4;
  return share < size ? share : size;
}
TELEGRAD_HOST_DEVICE constexpr size_t NumTop(size_t n, size_t keep) {
  return n / kTopBlock * keep + TopOfBlock(n % kTopBlock, keep);
}
constexpr size_t kTopPlacesAt = 4 * kTopBins;
TELEGRAD_HOST_DEVICE constexpr size_t TopCodesAt(size_t num_top) {
  return kTopPlacesAt + (12 * num_top + 7) / 8;
}
TELEGRAD_HOST_DEVICE constexpr size_t TopPayloadBytes(size_t num_top) {
  return TopCodesAt(num_top) + (num_top + 3) / 4;
}

struct TopRule {
  size_t keep = 64;     // sent of a whole block: a multiple of 4, 4 to kMostTop
  float decay = 0.95f;  // what stays of the residual, 0 to 1
};

// What a block adds to sums.
struct TopPart {
  double sums[kTopBins];
  uint32_t counts[kTopBins];
};
struct TopBounds {
  double mean;
  double scale;
};
// What encoders work in, aligned to 8: the bounds, a part per block, values and
// places of what is sent.
TELEGRAD_HOST_DEVICE constexpr size_t TopScratchBytes(size_t n, size_t keep) {
  return sizeof(TopBounds) + sizeof(TopPart) * NumTopBlocks(n) +
         6 * NumTop(n, keep);
}
struct TopScratch {
  TELEGRAD_HOST_DEVICE TopScratch(void* scratch, size_t n, size_t keep)
      : bounds(static_cast<TopBounds*>(scratch)),
        parts(reinterpret_cast<TopPart*>(bounds + 1)),
        values(reinterpret_cast<float*>(parts + NumTopBlocks(n))),
        places(reinterpret_cast<uint16_t*>(values + NumTop(n, keep))) {}
  TopBounds* bounds;
  TopPart* parts;
  float* values;
  uint16_t* places;
};

// In float32 without FMA, v = decay * residual[i] + grad[i]; kZero: where v is
// not finite, the element is counted and v = decay * residual[i] + 0, or 0
// where that is not finite either. Of each block the TopOfBlock elements of
// largest |v| are sent, of equal ones those with the lower index; what is not
// finite counts as 0. With w their values (0 where v is not finite), N of them
// in all, in double:
//   mean = sum w / N;  variance = (sum w^2 - mean * sum w) / (N - 1)
//   scale = 6 / 4 * sqrt(variance), or 1 where that is not above 0
//   code = rint(clamp((w - mean) / scale + 2, 0, 3))
//   level[c] = mean of all w with code c, as float32 and at most kMostTopLevel
//              in size; 0 where there are none
//   residual[i] = v - level[code], v where nothing is sent
// rint: to nearest, ties to even. Sums: of a block, lane l (of 32) adds its
// values l, l + 32, ... in order; of blocks, lane l (of 256) adds l, l + 256,
// ...; lanes are added pairwise, l with l + half, down to 1.
// Shapes: grad, residual [n] f32, n > 0; payload TopPayloadBytes(NumTop(n,
// keep)), on a GPU aligned to 4; scratch TopScratchBytes(n, keep). `stats` is
// added to; num_nonzero is the number of elements whose level is not 0. Alias:
// no. Equal bits everywhere. Cost: 12 bytes per element.
// Source: SparseLoCo (arXiv 2508.15706) as tplr-ai/templar has it
// (src/tplr/compress.py), which sums in float32.
using TopEncodeFn = void(const float* grad, float* residual, size_t n,
                         TopRule rule, NonFinite nonfinite, uint8_t* payload,
                         EncodeStats* stats, void* scratch, Stream stream);

// out [n] = the payload, or sum [n] = sum + that. A place outside its block,
// which no encoder writes, is left out.
using TopDecodeFn = void(const uint8_t* payload, size_t n, size_t keep,
                         float* out, Stream stream);

struct BlockTopKernels {
  TopEncodeFn* encode = nullptr;
  TopDecodeFn* decode = nullptr;
  TopDecodeFn* decode_add = nullptr;
};

// The rules for one element, for processors of every kind.
constexpr size_t kTopLanes = 32;
constexpr size_t kTopPartLanes = 256;

TELEGRAD_HOST_DEVICE inline TopBounds TopBoundsOf(double sum, double squares,
                                                  size_t count) {
  const double mean = sum / static_cast<double>(count);
  const double spread = squares - mean * sum;
  if (count < 2 || !(spread > 0)) return {mean, 1};
  const double scale = 1.5 * sqrt(spread / static_cast<double>(count - 1));
  return {mean, scale > 0 ? scale : 1};
}

TELEGRAD_HOST_DEVICE inline uint32_t TopCodeOf(float w,
                                               const TopBounds& bounds) {
  const double x = (static_cast<double>(w) - bounds.mean) / bounds.scale + 2;
  return static_cast<uint32_t>(rint(x < 0 ? 0 : x > 3 ? 3 : x));
}

TELEGRAD_HOST_DEVICE inline float TopLevelOf(double sum, uint64_t count) {
  if (count == 0) return 0.0f;
  const double mean = sum / static_cast<double>(count);
  const double most = static_cast<double>(kMostTopLevel);
  return static_cast<float>(mean > most ? most : mean < -most ? -most : mean);
}

// Place i of a string of places; code i of one of codes.
TELEGRAD_HOST_DEVICE inline uint32_t TopPlaceAt(const uint8_t* places,
                                                size_t i) {
  const uint8_t* const at = places + i / 2 * 3 + i % 2;
  const uint32_t bits = at[0] | static_cast<uint32_t>(at[1]) << 8;
  return i % 2 == 0 ? bits & 0xFFF : bits >> 4;
}
TELEGRAD_HOST_DEVICE inline uint32_t TopCodeAt(const uint8_t* codes, size_t i) {
  return codes[i / 4] >> (2 * (i % 4)) & 3u;
}

}  // namespace telegrad::kernels
