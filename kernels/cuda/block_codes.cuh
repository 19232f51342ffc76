#pragma once

#include "kernels/block_rules.h"
#include "kernels/cuda/launch.h"

// Four neighbouring codes at a time, the first a multiple of 4. Codes are
// aligned to 4 bytes.
namespace telegrad::kernels::cuda {

// Bytes of `count` codes behind `shift` bits.
__device__ inline unsigned BytesOf(unsigned count, uint32_t bits,
                                   unsigned shift = 0) {
  return (shift + count * bits + 7) / 8;
}
// How many of elements [i, i + most) there are; i < n.
__device__ inline unsigned CountOf(size_t i, size_t n, unsigned most) {
  return i + most <= n ? most : static_cast<unsigned>(n - i);
}

// Codes of 2 to 8 bits; past n they are 0. All threads of a warp take part,
// with elements that follow one another where `bits` is odd: then two threads
// share a byte, and the first writes for both.
__device__ inline void StoreCodes4(const int32_t (&code)[4], size_t i, size_t n,
                                   uint32_t bits, uint8_t* codes) {
  uint32_t word = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (i + j < n) {
      word |= (static_cast<uint32_t>(code[j]) & ((1u << bits) - 1))
              << (j * bits);
    }
  }
  uint8_t* const at = codes + i / 4 * bits / 2;
  if (bits % 2 != 0) {
    const uint32_t next = __shfl_down_sync(0xFFFFFFFFu, word, 1);
    if (i >= n || i % 8 != 0) return;
    const uint64_t both = word | static_cast<uint64_t>(next) << (4 * bits);
    for (unsigned b = 0; b < BytesOf(CountOf(i, n, 8), bits); ++b) {
      at[b] = static_cast<uint8_t>(both >> (8 * b));
    }
  } else if (i >= n) {
    return;
  } else if (bits == 2) {
    *at = static_cast<uint8_t>(word);
  } else if (i + 4 > n || bits == 6) {
    for (unsigned b = 0; b < BytesOf(CountOf(i, n, 4), bits); ++b) {
      at[b] = static_cast<uint8_t>(word >> (8 * b));
    }
  } else if (bits == 8) {
    *reinterpret_cast<uint32_t*>(at) = word;
  } else {
    *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(word);
  }
}

__device__ inline void LoadCodes4(const uint8_t* codes, size_t i, size_t n,
                                  uint32_t bits, int32_t (&code)[4]) {
  const uint8_t* const at = codes + i / 4 * bits / 2;
  uint32_t word = 0;
  const unsigned shift = static_cast<unsigned>(i % 8) * bits % 8;
  if (i + 4 > n || (bits != 2 && bits % 4 != 0)) {
    const unsigned num_bytes = BytesOf(CountOf(i, n, 4), bits, shift);
    for (unsigned b = 0; b < num_bytes; ++b) {
      word |= uint32_t{at[b]} << (8 * b);
    }
    word >>= shift;
  } else if (bits == 8) {
    word = *reinterpret_cast<const uint32_t*>(at);
  } else if (bits == 4) {
    word = *reinterpret_cast<const uint16_t*>(at);
  } else {
    word = *at;
  }
  const uint32_t sign = 1u << (bits - 1);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t field = word >> (j * bits) & (2 * sign - 1);
    code[j] = static_cast<int32_t>(field ^ sign) - static_cast<int32_t>(sign);
  }
}

// Sums, of 2 to 8, 16 or 32 bits each.
__device__ inline int32_t LoadSum(const uint8_t* sums, size_t i,
                                  uint32_t bits) {
  if (bits == 8) return reinterpret_cast<const int8_t*>(sums)[i];
  if (bits == 16) return reinterpret_cast<const int16_t*>(sums)[i];
  return reinterpret_cast<const int32_t*>(sums)[i];
}
__device__ inline void StoreSum(int32_t sum, size_t i, uint32_t bits,
                                uint8_t* sums) {
  if (bits == 8) {
    reinterpret_cast<int8_t*>(sums)[i] = static_cast<int8_t>(sum);
  } else if (bits == 16) {
    reinterpret_cast<int16_t*>(sums)[i] = static_cast<int16_t>(sum);
  } else {
    reinterpret_cast<int32_t*>(sums)[i] = sum;
  }
}

// Sums of elements [i, min(i + 4, n)), in one access if kVector and there are
// four.
template <bool kVector>
__device__ inline void StoreSums4(const int32_t (&sum)[4], size_t i, size_t n,
                                  uint32_t bits, uint8_t* sums) {
  if (bits < 8) return StoreCodes4(sum, i, n, bits, sums);
  if (!kVector || i + 4 > n) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j < n) StoreSum(sum[j], i + j, bits, sums);
    }
    return;
  }
  uint32_t word[4];
  memcpy(word, sum, sizeof(word));
  if (bits == 32) {
    uint4 words;
    memcpy(&words, word, sizeof(words));
    *reinterpret_cast<uint4*>(sums + 4 * i) = words;
  } else if (bits == 16) {
    *reinterpret_cast<uint2*>(sums + 2 * i) =
        make_uint2((word[0] & 0xFFFFu) | word[1] << 16,
                   (word[2] & 0xFFFFu) | word[3] << 16);
  } else {
    *reinterpret_cast<uint32_t*>(sums + i) =
        (word[0] & 0xFFu) | (word[1] & 0xFFu) << 8 | (word[2] & 0xFFu) << 16 |
        word[3] << 24;
  }
}

__device__ inline uint32_t WarpMax(uint32_t value) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// Scale b of a payload.
__device__ inline void PutBlockScale(float scale, size_t b,
                                     const BlockFormat& format,
                                     uint8_t* payload) {
  if (format.odd) {
    reinterpret_cast<uint16_t*>(payload)[b] =
        static_cast<uint16_t>(FloatBits(scale) >> 16);
  } else {
    reinterpret_cast<float*>(payload)[b] = scale;
  }
}
__device__ inline float BlockScaleAt(const uint8_t* payload, size_t b,
                                     const BlockFormat& format) {
  if (!format.odd) return reinterpret_cast<const float*>(payload)[b];
  return FloatOf(uint32_t{reinterpret_cast<const uint16_t*>(payload)[b]} << 16);
}

// The sum of a block's lanes (kernels/block.h), of which a thread has four.
__device__ inline float SumOfLanes(float (&lanes)[4]) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      lanes[j] += __shfl_xor_sync(0xFFFFFFFFu, lanes[j], step);
    }
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// `most`, or the magnitude of `v` where that is finite and more.
__device__ inline uint32_t MaxFinite(uint32_t most, float v) {
  const uint32_t bits = MagnitudeBits(v);
  return bits < 0x7F800000u && bits > most ? bits : most;
}

}  // namespace telegrad::kernels::cuda
