#include "kernels/cast.h"

#include "kernels/reference.h"
#include "kernels/reference/half.h"
#include "kernels/value.h"

namespace telegrad::kernels::reference {
namespace {

// bits / 2^shift to the nearest, ties to even.
uint32_t ShiftToNearest(uint32_t bits, uint32_t shift) {
  const uint32_t half = (1u << (shift - 1)) - 1 + (bits >> shift & 1u);
  return (bits + half) >> shift;
}

struct Fp16 : OfFp16 {
  static uint32_t Cast(float value) {
    const uint32_t sign = BitsOf(value) >> 16 & 0x8000u;
    const uint32_t magnitude = BitsOf(value) & 0x7FFFFFFFu;
    if (magnitude > kInfinity) return 0x7E00u;
    if (magnitude == kInfinity) return sign | 0x7C00u;
    if (magnitude >= 0x477FE000u) return sign | 0x7BFFu;  // 65504
    // Exponents are biased by 127 here and by 15 there.
    const uint32_t exponent = magnitude >> 23;
    if (exponent > 112) {
      return sign | ShiftToNearest(magnitude - (112u << 23), 13);
    }
    // A multiple of 2^-24; below 2^-25 it is 0.
    if (exponent < 102) return sign;
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return sign | ShiftToNearest(mantissa, 126 - exponent);
  }
};

struct Bf16 : OfBf16 {
  static uint32_t Cast(float value) {
    const uint32_t sign = BitsOf(value) >> 16 & 0x8000u;
    const uint32_t magnitude = BitsOf(value) & 0x7FFFFFFFu;
    if (magnitude > kInfinity) return 0x7FC0u;
    if (magnitude == kInfinity) return sign | 0x7F80u;
    if (magnitude >= 0x7F7F0000u) return sign | 0x7F7Fu;
    return sign | ShiftToNearest(magnitude, 16);
  }
};

template <typename Format>
void Encode(const float* grad, float* residual, size_t n, NonFinite nonfinite,
            uint8_t* codes, EncodeStats* stats, Stream) {
  for (size_t i = 0; i < n; ++i) {
    // Adding -0 changes nothing, while +0 would turn -0 into +0.
    const float rest = residual == nullptr ? -0.0f : residual[i];
    const float v = Value(rest, grad[i], i, nonfinite, stats);
    const uint32_t code = Format::Cast(v);
    if ((code & 0x7FFFu) != 0) ++stats->num_nonzero;
    if (residual != nullptr) residual[i] = v - Format::Float(code);
    codes[2 * i] = static_cast<uint8_t>(code);
    codes[2 * i + 1] = static_cast<uint8_t>(code >> 8);
  }
}

uint32_t CodeOf(const uint8_t* codes, size_t i) {
  return codes[2 * i] | static_cast<uint32_t>(codes[2 * i + 1]) << 8;
}

template <typename Format, bool kAdd>
void Decode(const uint8_t* codes, size_t n, float* out, Stream) {
  for (size_t i = 0; i < n; ++i) {
    const float value = Format::Float(CodeOf(codes, i));
    out[i] = kAdd ? out[i] + value : value;
  }
}

template <typename Format>
CastFormatKernels Kernels() {
  return {Encode<Format>, Decode<Format, false>, Decode<Format, true>};
}

}  // namespace

CastKernels Cast() { return {Kernels<Fp16>(), Kernels<Bf16>()}; }

}  // namespace telegrad::kernels::reference
