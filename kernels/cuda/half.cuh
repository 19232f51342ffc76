#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

// What a gradient may be made of. kPerAccess elements are 16 bytes. Load takes
// elements [i, i + kCount) to float32, as Load4 does: in one access if kVector,
// for an array aligned to 16 bytes and i a multiple of kCount.
namespace telegrad::kernels::cuda {

struct OfFloat32 {
  using Element = float;
  static constexpr int kPerAccess = 4;
  template <bool kVector>
  static __device__ void Load(const float* from, size_t i, size_t n,
                              float (&to)[4]) {
    Load4<kVector>(from, i, n, to);
  }
};

// kernels/cast.h says what Cast makes of a float.
struct Fp16Format {
  static __device__ float Float(uint32_t code) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(code)));
  }
  static __device__ uint32_t Cast(float value) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= kInfinity) {
      return magnitude == kInfinity ? sign | 0x7C00u : 0x7E00u;
    }
    const float finite = __uint_as_float(min(magnitude, 0x477FE000u));
    return sign | __half_as_ushort(__float2half_rn(finite));
  }
  static constexpr uint32_t kInfinity = 0x7F800000;
};
struct Bf16Format {
  static __device__ float Float(uint32_t code) {
    return __uint_as_float(code << 16);
  }
  static __device__ uint32_t Cast(float value) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= Fp16Format::kInfinity) {
      return magnitude == Fp16Format::kInfinity ? sign | 0x7F80u : 0x7FC0u;
    }
    const uint32_t finite = min(magnitude, 0x7F7F0000u);
    return sign | (finite + 0x7FFFu + (finite >> 16 & 1u)) >> 16;
  }
};

// 16-bit elements [i, i + 4), as Load4 and Store4 do it, at any address but
// with kVector, which is for arrays aligned to 8 bytes.
template <bool kVector>
__device__ inline void LoadHalves(const uint8_t* from, size_t i, size_t n,
                                  uint32_t (&to)[4]) {
  if (kVector && i + 4 <= n) {
    const uint2 words = *reinterpret_cast<const uint2*>(from + 2 * i);
    to[0] = words.x & 0xFFFFu;
    to[1] = words.x >> 16;
    to[2] = words.y & 0xFFFFu;
    to[3] = words.y >> 16;
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint8_t* at = from + 2 * (i + j);
    to[j] = i + j < n ? at[0] | static_cast<uint32_t>(at[1]) << 8 : 0;
  }
}

template <bool kVector>
__device__ inline void StoreHalves(const uint32_t (&from)[4], size_t i,
                                   size_t n, uint8_t* to) {
  if (kVector && i + 4 <= n) {
    *reinterpret_cast<uint2*>(to + 2 * i) =
        make_uint2(from[0] | from[1] << 16, from[2] | from[3] << 16);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (i + j >= n) continue;
    to[2 * (i + j)] = static_cast<uint8_t>(from[j]);
    to[2 * (i + j) + 1] = static_cast<uint8_t>(from[j] >> 8);
  }
}

template <class Format>
struct OfHalves : Format {
  using Element = uint16_t;
  static constexpr int kPerAccess = 8;
  template <bool kVector, int kCount>
  static __device__ void Load(const uint16_t* from, size_t i, size_t n,
                              float (&to)[kCount]) {
    static_assert(kCount == 4 || kCount == 8, "an access is 8 or 16 bytes");
    if (kVector && i + kCount <= n) {
      uint32_t words[kCount / 2];
      LoadWords(from + i, words);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        to[j] = Format::Float(j % 2 == 0 ? words[j / 2] & 0xFFFFu
                                         : words[j / 2] >> 16);
      }
      return;
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      to[j] = i + j < n ? Format::Float(from[i + j]) : 0.0f;
    }
  }

 private:
  static __device__ void LoadWords(const uint16_t* from, uint32_t (&to)[4]) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    memcpy(to, &words, sizeof(words));
  }
  static __device__ void LoadWords(const uint16_t* from, uint32_t (&to)[2]) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    memcpy(to, &words, sizeof(words));
  }
};

using OfFp16 = OfHalves<Fp16Format>;
using OfBf16 = OfHalves<Bf16Format>;

}  // namespace telegrad::kernels::cuda
