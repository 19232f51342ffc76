#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/stream.h"
#include "kernels/encode_stats.h"
#include "kernels/host_device.h"
#include "kernels/sparse.h"

// The largest of many by magnitude, exact, where the host cannot look at them:
// on a GPU. 0, NaN and infinities are never among them; of equal magnitudes the
// lower index comes first. CPU codecs have faster loops of their own
// (compression/sparse/select.h) that give the same bits.
namespace telegrad::kernels {

// A float's bits without the sign, in the order of magnitudes; 0 for what
// cannot be sent, NaN and infinities.
TELEGRAD_HOST_DEVICE inline uint32_t SendableBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  bits &= 0x7FFFFFFF;
  return bits < 0x7F800000 ? bits : 0;
}

// Elements are sampled in runs of a cache line, one of each `step` runs.
constexpr size_t kSampleRun = 16;
TELEGRAD_HOST_DEVICE constexpr size_t MaxSample(size_t n) {
  return n / 32 + 16384;
}
TELEGRAD_HOST_DEVICE constexpr size_t SampleStep(size_t n) {
  return n < 8192 ? 1 : n / 4096 < 128 ? n / 4096 : 128;
}

// Where the run of a group of `step` runs begins: anywhere in it, by a hash,
// since tensors may be periodic.
TELEGRAD_HOST_DEVICE inline size_t SampleAt(size_t group, size_t step) {
  uint64_t hash = (group + 1) * 0x9E3779B97F4A7C15;
  hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93;
  return (group * step + ((hash >> 32) * step >> 32)) * kSampleRun;
}

// Elements in the sample of n > 0: only the last run can be cut off.
TELEGRAD_HOST_DEVICE inline size_t SampleSize(size_t n) {
  const size_t step = SampleStep(n);
  const size_t last = (n + step * kSampleRun - 1) / (step * kSampleRun) - 1;
  const size_t at = SampleAt(last, step);
  const size_t left = at < n ? n - at : 0;
  return last * kSampleRun + (left < kSampleRun ? left : kSampleRun);
}

// Which of a sample, counted from the largest, about `wanted` of n elements are
// as large as; `generous`: no fewer than `wanted`, most probably.
inline size_t SampleRank(size_t size, size_t n, size_t wanted, bool generous) {
  double rank = static_cast<double>(wanted) * static_cast<double>(size) /
                static_cast<double>(n);
  if (generous && size < n) rank += 3 * std::sqrt(rank) + 1;
  return static_cast<size_t>(
      std::clamp(std::round(rank), 1.0, static_cast<double>(size)));
}

// What is sampled: v of LargeValuesFn or, with momentum, MomentumLargeValuesFn.
struct SampledValues {
  const float* grad = nullptr;
  const float* residual = nullptr;
  const float* momentum = nullptr;  // null: without
  MomentumCorrection correction;
};

// What GPUs work in, aligned to 8; CPUs leave it alone (it may be null).
constexpr size_t kSelectTile = 1024;
constexpr size_t kSelectStateBytes = 16448;
TELEGRAD_HOST_DEVICE constexpr size_t SelectClearedBytes(size_t n) {
  return kSelectStateBytes + 8 * ((n + kSelectTile - 1) / kSelectTile);
}
TELEGRAD_HOST_DEVICE constexpr size_t SelectScratchBytes(size_t n) {
  return SelectClearedBytes(n) + (4 * MaxSample(n) + 7) / 8 * 8;
}

// *threshold = a magnitude, never 0, that about `wanted` of n > 0 elements have
// at least. Of the sample's magnitudes, as bits, kth is the SampleRank-th
// largest, least and most are the ends:
//   shift = max(0, bit width of (most - least) - 12)
//   threshold = least + ((kth - least) >> shift << shift), at least 1
// Cost: a sector per element of the sample.
constexpr uint32_t kSelectBinBits = 12;
using SampleThresholdFn = void(SampledValues values, size_t n, size_t wanted,
                               bool generous, float* threshold, void* scratch,
                               Stream stream);

// How many of the candidates are sent: all where there are `fewest` to `most`,
// else the k largest, of the candidates where there are more, of all elements
// where there are fewer. 1 <= fewest <= k <= most.
struct HowMany {
  size_t k = 1;
  size_t fewest = 1;
  size_t most = 1;
};
// Exactly k, or about as many, as a sample's threshold gives them.
TELEGRAD_HOST_DEVICE inline HowMany HowManyOf(size_t k, bool is_sampled) {
  HowMany how_many;
  how_many.k = k;
  how_many.fewest = is_sampled ? 1 : k;
  how_many.most = is_sampled ? 2 * k : k;
  return how_many;
}
// What LargeValuesFn lists, and the arrays that it left.
struct Candidates {
  const uint32_t* indices = nullptr;  // ascending
  const float* values = nullptr;
  const uint64_t* count = nullptr;
  float* residual = nullptr;  // [n]
  float* momentum = nullptr;  // [n], or null
  size_t n = 0;
};
// Lists of those that are sent, in ascending order of index, with room for
// `most`. stats->num_nonzero is set to their number.
struct Taken {
  uint32_t* indices = nullptr;
  float* values = nullptr;
  uint64_t* count = nullptr;
  EncodeStats* stats = nullptr;
};
// Takes them off residual and momentum, which become 0. Cost: 8 bytes per
// candidate; 4 more three times where some are to be chosen; of all elements
// the same where there are too few candidates.
using TakeLargestFn = void(HowMany how_many, Candidates candidates, Taken taken,
                           void* scratch, Stream stream);

// *scale = min(1, clip / L2 norm of x [n]); elements that are not finite are
// left out. Squares in double; of each tile of kClipTile elements lane l (of
// kClipLanes) adds l, l + kClipLanes, ... in order, and the lanes are added
// pairwise, l with l + 512, then l with l + 256, down to 1; the tiles' sums are
// added likewise. Cost: 4 bytes per element.
constexpr size_t kClipTile = 16384;
constexpr size_t kClipLanes = 1024;
using ClipScaleFn = void(const float* x, size_t n, double clip, float* scale,
                         void* scratch, Stream stream);

struct SelectKernels {
  SampleThresholdFn* sample_threshold = nullptr;
  TakeLargestFn* take_largest = nullptr;
  ClipScaleFn* clip_scale = nullptr;
};

}  // namespace telegrad::kernels
