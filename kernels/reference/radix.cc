#include "kernels/radix.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference.h"

namespace telegrad::kernels::reference {
namespace {

constexpr uint32_t kPowersOf3[kRadixDigits] = {1, 3, 9, 27, 81};
constexpr uint32_t kNegative = 0;
constexpr uint32_t kZero = 1;
constexpr uint32_t kPositive = 2;

struct Place {
  size_t byte;
  uint32_t power;
};

// Where the digit of element i of n is.
Place PlaceOf(size_t i, size_t n) {
  const size_t block = i / kRadixBlock;
  const size_t at = i % kRadixBlock;
  const size_t num_bytes = RadixBlockBytes(n - block * kRadixBlock);
  return {block * kRadixBlockBytes + at % num_bytes,
          kPowersOf3[at / num_bytes]};
}

uint32_t DigitAt(const uint8_t* payload, size_t i, size_t n) {
  const Place place = PlaceOf(i, n);
  return payload[place.byte] / place.power % 3;
}

// Sets the digit of element i, which was 0.
void PutDigit(uint32_t digit, size_t i, size_t n, uint8_t* payload) {
  const Place place = PlaceOf(i, n);
  payload[place.byte] =
      static_cast<uint8_t>(payload[place.byte] + digit * place.power);
}

float ValueOf(uint32_t digit, float threshold) {
  return digit == kPositive ? threshold : digit == kZero ? 0.0f : -threshold;
}

// k + W.
uint32_t SumOfDigits(const uint8_t* const* frames, uint32_t num_frames,
                     size_t i, size_t n) {
  uint32_t sum = 0;
  for (uint32_t f = 0; f < num_frames; ++f) sum += DigitAt(frames[f], i, n);
  return sum;
}

void RadixEncode(const float* grad, float* residual, size_t n, float threshold,
                 NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
                 Stream) {
  std::fill_n(payload, RadixBytes(n), uint8_t{0});
  for (size_t i = 0; i < n; ++i) {
    float v = residual[i] + grad[i];
    if (nonfinite == NonFinite::kZero && !std::isfinite(v)) {
      ++stats->num_nonfinite;
      if (i < stats->first_nonfinite) stats->first_nonfinite = i;
      v = residual[i] + 0.0f;
    }
    uint32_t digit = kZero;
    if (v >= threshold) {
      digit = kPositive;
      v -= threshold;
    } else if (v <= -threshold) {
      digit = kNegative;
      v += threshold;
    }
    residual[i] = v;
    if (digit != kZero) ++stats->num_nonzero;
    PutDigit(digit, i, n, payload);
  }
}

void RadixDecode(const uint8_t* payload, size_t n, float threshold, float* out,
                 Stream) {
  for (size_t i = 0; i < n; ++i) {
    out[i] = ValueOf(DigitAt(payload, i, n), threshold);
  }
}

void RadixDecodeAdd(const uint8_t* payload, size_t n, float threshold,
                    float* sum, Stream) {
  for (size_t i = 0; i < n; ++i) {
    sum[i] += ValueOf(DigitAt(payload, i, n), threshold);
  }
}

// Number j of the block of sums whose first element is `first`.
uint32_t NumberOf(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                  const DigitGroup& group, size_t first, size_t j) {
  uint32_t number = 0;
  for (size_t i = group.digits; i-- > 0;) {
    const size_t element = first + kNumbersPerBlock * i + j;
    const uint32_t digit =
        element < n ? SumOfDigits(frames, num_frames, element, n) : 0;
    number = number * group.radix + digit;
  }
  return number;
}

void RadixSumPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                  uint8_t* packed, Stream) {
  const DigitGroup group = DigitGroupFor(num_frames);
  std::fill_n(packed, RadixSumBytes(n, num_frames), uint8_t{0});
  for (size_t first = 0; first < n; first += SumBlock(group)) {
    for (size_t j = 0; j < kNumbersPerBlock; ++j) {
      const uint32_t number = NumberOf(frames, num_frames, n, group, first, j);
      for (size_t p = 0; p < group.bits; ++p) {
        uint8_t& byte = packed[4 * p + j / 8];
        byte = static_cast<uint8_t>(byte | ((number >> p & 1u) << (j % 8)));
      }
    }
    packed += 4 * group.bits;
  }
}

void RadixPackedSumDecode(const uint8_t* packed, uint32_t num_frames, size_t n,
                          float threshold, float* out, Stream) {
  const DigitGroup group = DigitGroupFor(num_frames);
  for (size_t first = 0; first < n; first += SumBlock(group)) {
    for (size_t j = 0; j < kNumbersPerBlock; ++j) {
      uint32_t number = 0;
      for (size_t p = 0; p < group.bits; ++p) {
        const uint32_t byte = packed[4 * p + j / 8];
        number |= (byte >> (j % 8) & 1u) << p;
      }
      for (size_t i = first + j; i < n && i < first + SumBlock(group);
           i += kNumbersPerBlock) {
        const int32_t sum = static_cast<int32_t>(number % group.radix) -
                            static_cast<int32_t>(num_frames);
        out[i] = static_cast<float>(sum) * threshold;
        number /= group.radix;
      }
    }
    packed += 4 * group.bits;
  }
}

void RadixSumDecode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                    float threshold, float* out, Stream) {
  for (size_t i = 0; i < n; ++i) {
    const auto sum =
        static_cast<int32_t>(SumOfDigits(frames, num_frames, i, n));
    out[i] =
        static_cast<float>(sum - static_cast<int32_t>(num_frames)) * threshold;
  }
}

// Wraps, as TwoBitReencode does.
void RadixReencode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                   int32_t* residual, uint32_t shift, int32_t quantum,
                   uint8_t* payload, Stream) {
  std::fill_n(payload, RadixBytes(n), uint8_t{0});
  const uint32_t q = static_cast<uint32_t>(quantum);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t sum = SumOfDigits(frames, num_frames, i, n) - num_frames;
    uint32_t v = static_cast<uint32_t>(residual[i]) + (sum << shift);
    uint32_t digit = kZero;
    if (static_cast<int32_t>(v) >= quantum) {
      digit = kPositive;
      v -= q;
    } else if (static_cast<int32_t>(v) <= -quantum) {
      digit = kNegative;
      v += q;
    }
    residual[i] = static_cast<int32_t>(v);
    PutDigit(digit, i, n, payload);
  }
}

}  // namespace

RadixKernels Radix() {
  RadixKernels kernels;
  kernels.encode = RadixEncode;
  kernels.decode = RadixDecode;
  kernels.decode_add = RadixDecodeAdd;
  kernels.sum_pack = RadixSumPack;
  kernels.packed_sum_decode = RadixPackedSumDecode;
  kernels.sum_decode = RadixSumDecode;
  kernels.reencode = RadixReencode;
  return kernels;
}

}  // namespace telegrad::kernels::reference
