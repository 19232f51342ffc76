#include "kernels/code_sum.h"

#include <algorithm>

#include "kernels/reference.h"
#include "kernels/reference/codes.h"

namespace telegrad::kernels::reference {
namespace {

int32_t SumOfCodes(const uint8_t* const* frames, uint32_t num_frames,
                   size_t i) {
  int32_t sum = 0;
  for (uint32_t f = 0; f < num_frames; ++f) sum += CodeAt(frames[f], i);
  return sum;
}

// Bit j of byte b of a little-endian word is bit 8*b + j.
size_t PlaneByte(size_t i, uint32_t bits, uint32_t plane) {
  return 4 * (i / kSumsPerGroup * bits + plane) + i % kSumsPerGroup / 8;
}

float PackedValueAt(const uint8_t* packed, uint32_t num_frames, uint32_t bits,
                    size_t i, float threshold) {
  uint32_t value = 0;
  for (uint32_t p = 0; p < bits; ++p) {
    const uint32_t byte = packed[PlaneByte(i, bits, p)];
    value |= ((byte >> (i % 8)) & 1u) << p;
  }
  const int32_t sum =
      static_cast<int32_t>(value) - static_cast<int32_t>(num_frames);
  return static_cast<float>(sum) * threshold;
}

}  // namespace

void TwoBitSumPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                   uint8_t* packed, Stream) {
  const uint32_t bits = SumBits(num_frames);
  std::fill_n(packed, PackedSumBytes(n, num_frames), uint8_t{0});
  for (size_t i = 0; i < n; ++i) {
    const uint32_t value = static_cast<uint32_t>(
        SumOfCodes(frames, num_frames, i) + static_cast<int32_t>(num_frames));
    for (uint32_t p = 0; p < bits; ++p) {
      uint8_t& byte = packed[PlaneByte(i, bits, p)];
      byte = static_cast<uint8_t>(byte | (((value >> p) & 1u) << (i % 8)));
    }
  }
}

void PackedSumDecode(const uint8_t* packed, uint32_t num_frames, size_t n,
                     float threshold, float* out, Stream) {
  const uint32_t bits = SumBits(num_frames);
  for (size_t i = 0; i < n; ++i) {
    out[i] = PackedValueAt(packed, num_frames, bits, i, threshold);
  }
}

// The arithmetic wraps, so that a residual beyond its bound is no undefined
// behaviour.
void TwoBitReencode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                    int32_t* residual, uint32_t shift, int32_t quantum,
                    uint8_t* codes, Stream) {
  std::fill_n(codes, TwoBitBytes(n), uint8_t{0});
  const uint32_t q = static_cast<uint32_t>(quantum);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t sum =
        static_cast<uint32_t>(SumOfCodes(frames, num_frames, i));
    uint32_t v = static_cast<uint32_t>(residual[i]) + (sum << shift);
    uint32_t code = kZeroCode;
    if (static_cast<int32_t>(v) >= quantum) {
      code = kPositiveCode;
      v -= q;
    } else if (static_cast<int32_t>(v) <= -quantum) {
      code = kNegativeCode;
      v += q;
    }
    residual[i] = static_cast<int32_t>(v);
    PutCode(code, i, codes);
  }
}

void RescaleUnits(int32_t* residual, size_t n, int bits, Stream) {
  for (size_t i = 0; i < n; ++i) residual[i] = RescaledUnit(residual[i], bits);
}

void TwoBitSumDecode(const uint8_t* const* frames, uint32_t num_frames,
                     size_t n, float threshold, float* out, Stream) {
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(SumOfCodes(frames, num_frames, i)) * threshold;
  }
}

}  // namespace telegrad::kernels::reference
