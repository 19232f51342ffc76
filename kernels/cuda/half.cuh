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

struct Fp16Format {
  static __device__ float Float(uint32_t code) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(code)));
  }
};
struct Bf16Format {
  static __device__ float Float(uint32_t code) {
    return __uint_as_float(code << 16);
  }
};

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
