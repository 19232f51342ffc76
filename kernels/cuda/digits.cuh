#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/planes.cuh"
#include "kernels/radix.h"

// Codes as digits, of kernels/radix.h: a thread takes four bytes of a block,
// five times four neighbouring elements.
namespace telegrad::kernels::cuda {

constexpr int kDigits = static_cast<int>(kRadixDigits);
constexpr size_t kQuadsPerBlock = kRadixBlockBytes / 4;

// Four neighbouring bytes of a block of codes.
struct Quad {
  size_t block;
  size_t column;     // the place of the first byte
  size_t num_elems;  // the block's
  size_t num_bytes;  // the block's
  __device__ bool is_whole() const { return num_elems == kRadixBlock; }
  // The element of digit p of the first byte.
  __device__ size_t element(int p) const {
    return block * kRadixBlock + static_cast<size_t>(p) * num_bytes + column;
  }
  __device__ bool has(int p, int c) const {
    return column + c < num_bytes &&
           static_cast<size_t>(p) * num_bytes + column + c < num_elems;
  }
};

__device__ inline Quad QuadAt(size_t index, size_t n) {
  Quad quad;
  quad.block = index / kQuadsPerBlock;
  quad.column = 4 * (index % kQuadsPerBlock);
  const size_t left = n - quad.block * kRadixBlock;
  quad.num_elems = left < kRadixBlock ? left : kRadixBlock;
  quad.num_bytes = (quad.num_elems + kRadixDigits - 1) / kRadixDigits;
  return quad;
}

__host__ __device__ inline size_t NumQuads(size_t n) {
  const size_t rest = n % kRadixBlock;
  return n / kRadixBlock * kQuadsPerBlock +
         ((rest + kRadixDigits - 1) / kRadixDigits + 3) / 4;
}

// The sums of digits of a quad: of its bytes 0 and 2 in the halves of `even`,
// of 1 and 3 in those of `odd`.
struct DigitSums {
  uint32_t even[kDigits];
  uint32_t odd[kDigits];
  __device__ int at(int p, int c) const {
    return static_cast<int>((c % 2 == 0 ? even[p] : odd[p]) >> (c / 2 * 16) &
                            0xFFFFu);
  }
};

// Adds the digits of two bytes in the halves of `pair`; the multiplication
// divides a byte by 3.
__device__ inline void AddDigits(uint32_t pair, uint32_t (&sums)[kDigits]) {
#pragma unroll
  for (int p = 0; p < kDigits; ++p) {
    const uint32_t rest = pair * 171u >> 9 & 0x007F007Fu;
    sums[p] += pair - 3u * rest;
    pair = rest;
  }
}

// Adds those of a frame.
__device__ inline void AddQuad(const uint8_t* frame, const Quad& quad,
                               DigitSums& sums) {
  const size_t first = quad.block * kRadixBlockBytes + quad.column;
  uint32_t word = 0;
  if (quad.is_whole()) {
    word = LoadWord(frame, first / 4);
  } else {
    for (int c = 0; c < 4; ++c) {
      if (quad.column + c >= quad.num_bytes) break;
      word |= static_cast<uint32_t>(frame[first + c]) << (8 * c);
    }
  }
  AddDigits(word & 0x00FF00FFu, sums.even);
  AddDigits(word >> 8 & 0x00FF00FFu, sums.odd);
}

__device__ inline DigitSums SumQuad(const Pass& pass, const Quad& quad) {
  DigitSums sums = {};
#pragma unroll 4
  for (uint32_t f = 0; f < pass.num_frames; ++f) {
    AddQuad(pass.frames[f], quad, sums);
  }
  return sums;
}

// Bit j of the result in lane l is bit l of `word` in lane j.
__device__ inline uint32_t Transpose(uint32_t word) {
  const unsigned lane = threadIdx.x % kWarp;
  uint32_t low = 0x0000FFFFu;
#pragma unroll
  for (unsigned step = 16; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, word, step);
    word = (lane & step) != 0 ? (word & ~low) | (other & ~low) >> step
                              : (word & low) | (other & low) << step;
    low ^= low << (step / 2);
  }
  return word;
}

// Calls launch(pass) for kFramesPerPass frames at a time, in stream order.
template <typename Launch>
void ForEachPass(const uint8_t* const* frames, uint32_t num_frames,
                 Launch launch) {
  for (uint32_t f = 0; f < num_frames; f += kFramesPerPass) {
    Pass pass = {};
    const uint32_t left = num_frames - f;
    pass.num_frames = left < kFramesPerPass ? left : kFramesPerPass;
    for (uint32_t i = 0; i < pass.num_frames; ++i) {
      pass.frames[i] = frames[f + i];
    }
    pass.is_first = f == 0;
    pass.is_last = left <= kFramesPerPass;
    launch(pass);
  }
}

}  // namespace telegrad::kernels::cuda
