#pragma once

#include "kernels/cuda/planes.cuh"
#include "kernels/cuda/stats.cuh"
#include "kernels/sign.h"

// Bits of signs, four at a time, and what they are made of.
namespace telegrad::kernels::cuda {

// SignBytes is for the host only.
__device__ inline size_t BytesOfSigns(size_t n) {
  return (n + kSignsPerWord - 1) / kSignsPerWord * 4;
}

// Little-endian floats at any address.
__device__ inline float LoadFloat(const uint8_t* bytes, size_t index) {
  return __uint_as_float(LoadWord(bytes, index));
}
__device__ inline void StoreFloat(float value, size_t index, uint8_t* bytes) {
  StoreWord(__float_as_uint(value), index, bytes);
}

// Makes bytes of the four bits that each thread of a whole warp has, the first
// highest; `is_there`: whether this thread's byte exists.
__device__ inline void StoreBits(uint32_t bits, size_t i, bool is_there,
                                 uint8_t* to) {
  const uint32_t next = __shfl_down_sync(0xFFFFFFFFu, bits, 1);
  if (is_there && threadIdx.x % 2 == 0) {
    to[i / 8] = static_cast<uint8_t>(bits << 4 | next);
  }
}

// The four bits of elements [i, i + 4).
__device__ inline uint32_t LoadBits(const uint8_t* from, size_t i) {
  return from[i / 8] >> (4 - i % 8) & 15u;
}

// +-magnitude of elements [i, i + 4), onto what `out` holds or over it.
template <bool kVector, bool kAdd>
__device__ inline void DecodeFour(uint32_t bits, float magnitude, size_t i,
                                  size_t n, float* out) {
  float values[4] = {};
  if (kAdd) Load4<kVector>(out, i, n, values);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float value = (bits >> (3 - j) & 1u) != 0 ? magnitude : -magnitude;
    values[j] = kAdd ? values[j] + value : value;
  }
  Store4<kVector>(values, i, n, out);
}

}  // namespace telegrad::kernels::cuda
