#include "kernels/sign.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/reference.h"
#include "kernels/value.h"

namespace telegrad::kernels::reference {
namespace {

bool BitAt(const uint8_t* bits, size_t i) {
  return (bits[i / 8] >> (7 - i % 8) & 1) != 0;
}
void SetBit(size_t i, uint8_t* bits) {
  bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | 1u << (7 - i % 8));
}

void OneBitEncode(const float* grad, float* residual, size_t n, float threshold,
                  float magnitude, NonFinite nonfinite, uint8_t* payload,
                  EncodeStats* stats, Stream) {
  std::fill_n(payload, SignBytes(n), uint8_t{0});
  for (size_t i = 0; i < n; ++i) {
    const float v = Value(residual[i], grad[i], i, nonfinite, stats);
    const bool is_above = v > threshold;
    residual[i] = is_above ? v - magnitude : v + magnitude;
    if (is_above) SetBit(i, payload);
  }
  stats->num_nonzero += n;
  std::memcpy(payload + SignBytes(n), &magnitude, sizeof(magnitude));
}

template <bool kAdd>
void OneBitDecode(const uint8_t* payload, size_t n, float* out, Stream) {
  float magnitude;
  std::memcpy(&magnitude, payload + SignBytes(n), sizeof(magnitude));
  for (size_t i = 0; i < n; ++i) {
    const float value = BitAt(payload, i) ? magnitude : -magnitude;
    out[i] = kAdd ? out[i] + value : value;
  }
}

void CountPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
               uint8_t* counts, Stream) {
  const uint32_t planes = SignCountPlanes(num_frames);
  std::fill_n(counts, SignCountBytes(n, num_frames), uint8_t{0});
  for (size_t i = 0; i < 8 * SignBytes(n); ++i) {
    uint32_t count = 0;
    for (uint32_t f = 0; f < num_frames; ++f) count += BitAt(frames[f], i);
    for (uint32_t p = 0; p < planes; ++p) {
      if ((count >> p & 1u) != 0) SetBit(i, counts + p * SignBytes(n));
    }
  }
}

void CountDecode(const uint8_t* counts, uint32_t num_frames, size_t n,
                 float* out, Stream) {
  const uint32_t planes = SignCountPlanes(num_frames);
  for (size_t i = 0; i < n; ++i) {
    uint32_t count = 0;
    for (uint32_t p = 0; p < planes; ++p) {
      if (BitAt(counts + p * SignBytes(n), i)) count |= 1u << p;
    }
    out[i] = static_cast<float>(2 * static_cast<int32_t>(count) -
                                static_cast<int32_t>(num_frames));
  }
}

// The mean magnitude of `m` values in the order of the contract.
float MeanMagnitude(const float* values, size_t m) {
  float lanes[kSignLanes] = {};
  for (size_t i = 0; i < m; ++i) lanes[i % kSignLanes] += std::fabs(values[i]);
  for (size_t h = kSignLanes / 2; h > 0; h /= 2) {
    for (size_t l = 0; l < h; ++l) lanes[l] += lanes[l + h];
  }
  const float mean = lanes[0] / static_cast<float>(m);
  constexpr float kLargest = std::numeric_limits<float>::max();
  return mean <= kLargest ? mean : kLargest;
}

void BlockEncode(const float* grad, float* residual, size_t n, size_t block,
                 NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
                 Stream) {
  uint8_t* bits = payload + 4 * NumSignBlocks(n, block);
  std::fill_n(bits, SignBytes(n), uint8_t{0});
  for (size_t from = 0; from < n; from += block) {
    const size_t m = n - from < block ? n - from : block;
    for (size_t i = from; i < from + m; ++i) {
      residual[i] = Value(residual[i], grad[i], i, nonfinite, stats);
    }
    const float scale = MeanMagnitude(residual + from, m);
    std::memcpy(payload + 4 * (from / block), &scale, sizeof(scale));
    for (size_t i = from; i < from + m; ++i) {
      const bool is_positive = residual[i] >= 0;
      residual[i] = is_positive ? residual[i] - scale : residual[i] + scale;
      if (is_positive) SetBit(i, bits);
    }
    if (scale != 0) stats->num_nonzero += m;
  }
}

template <bool kAdd>
void BlockDecode(const uint8_t* payload, size_t n, size_t block, float* out,
                 Stream) {
  const uint8_t* bits = payload + 4 * NumSignBlocks(n, block);
  for (size_t i = 0; i < n; ++i) {
    float scale;
    std::memcpy(&scale, payload + 4 * (i / block), sizeof(scale));
    const float value = BitAt(bits, i) ? scale : -scale;
    out[i] = kAdd ? out[i] + value : value;
  }
}

}  // namespace

SignKernels Sign() {
  SignKernels sign;
  sign.one_bit_encode = OneBitEncode;
  sign.one_bit_decode = OneBitDecode<false>;
  sign.one_bit_decode_add = OneBitDecode<true>;
  sign.count_pack = CountPack;
  sign.count_decode = CountDecode;
  sign.block_encode = BlockEncode;
  sign.block_decode = BlockDecode<false>;
  sign.block_decode_add = BlockDecode<true>;
  return sign;
}

}  // namespace telegrad::kernels::reference
