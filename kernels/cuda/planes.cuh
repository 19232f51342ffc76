#pragma once

#include "kernels/code_sum.h"
#include "kernels/cuda/launch.h"

// Sums of codes as bit planes; the adder is that of kernels/cpu/planes-inl.h.
// A lane takes a group of 32 elements, a warp a tile of 32 groups. In a plane
// of "code order" element i < 16 of a group is at its code's low bit, and
// element i + 16 one bit above; in "element order" element i is bit i.
namespace telegrad::kernels::cuda {

// Frames go by value in a kernel's parameters (4 KiB at most), so that nothing
// is allocated and no copy has to outlive the call. More frames than this take
// several passes over the output.
constexpr uint32_t kFramesPerPass = 64;
constexpr uint32_t kMaxPassPlanes = SumBits(kFramesPerPass);
constexpr uint32_t kMaxPlanes = SumBits(kMaxSumContributors);
constexpr unsigned kWarps = kThreads / kWarp;
constexpr size_t kTileGroups = kWarp;
constexpr size_t kTile = kTileGroups * kSumsPerGroup;

struct Pass {
  const uint8_t* frames[kFramesPerPass];
  uint32_t num_frames;
  bool is_first;
  bool is_last;
};

// TwoBitReencodeFn's quantum.
struct Quantum {
  uint32_t shift;
  int32_t value;
};

// Adds k to a residual; on the last pass takes the quantum off and returns its
// sign, or 0.
__device__ inline int ReencodeOne(int k, bool is_last, Quantum quantum,
                                  int32_t& residual) {
  const uint32_t q = static_cast<uint32_t>(quantum.value);
  uint32_t v = static_cast<uint32_t>(residual) +
               (static_cast<uint32_t>(k) << quantum.shift);
  int sign = 0;
  if (is_last && static_cast<int32_t>(v) >= quantum.value) {
    sign = 1;
    v -= q;
  } else if (is_last && static_cast<int32_t>(v) <= -quantum.value) {
    sign = -1;
    v += q;
  }
  residual = static_cast<int32_t>(v);
  return sign;
}

// Little-endian word `index`, at any address.
__device__ inline uint32_t LoadWord(const uint8_t* bytes, size_t index) {
  const uint8_t* at = bytes + 4 * index;
  if (reinterpret_cast<uintptr_t>(at) % 4 == 0) {
    return *reinterpret_cast<const uint32_t*>(at);
  }
  return at[0] | at[1] << 8 | at[2] << 16 | static_cast<uint32_t>(at[3]) << 24;
}

__device__ inline void StoreWord(uint32_t word, size_t index, uint8_t* bytes) {
  uint8_t* at = bytes + 4 * index;
  if (reinterpret_cast<uintptr_t>(at) % 4 == 0) {
    *reinterpret_cast<uint32_t*>(at) = word;
    return;
  }
  for (int b = 0; b < 4; ++b) at[b] = static_cast<uint8_t>(word >> (8 * b));
}

// The bits of the codes of the first `n` elements of a word.
__device__ inline uint32_t CodesBefore(size_t n) {
  if (n >= kCodesPerWord) return 0xFFFFFFFFu;
  const uint32_t last = 0xFF00u >> (n % 4 * 2) & 0xFFu;
  return (last << (n / 4 * 8)) | ((1u << (n / 4 * 8)) - 1);
}

// The two words of codes of a group, without what lies past n.
__device__ inline uint2 LoadCodes(const uint8_t* frame, size_t group,
                                  size_t n) {
  const size_t left = n - group * kSumsPerGroup;
  if (left >= kSumsPerGroup && reinterpret_cast<uintptr_t>(frame) % 8 == 0) {
    return reinterpret_cast<const uint2*>(frame)[group];
  }
  uint2 words = {LoadWord(frame, 2 * group) & CodesBefore(left), 0};
  if (left > kCodesPerWord) {
    words.y =
        LoadWord(frame, 2 * group + 1) & CodesBefore(left - kCodesPerWord);
  }
  return words;
}

// planes = the sum of (code + 1) over the frames of a pass, in code order.
template <int kPlanes>
__device__ inline void SumGroup(const Pass& pass, size_t group, size_t n,
                                uint32_t (&planes)[kPlanes]) {
  constexpr uint32_t kEven = 0x55555555u;
#pragma unroll
  for (int p = 0; p < kPlanes; ++p) planes[p] = 0;
#pragma unroll 4
  for (uint32_t f = 0; f < pass.num_frames; ++f) {
    const uint2 codes = LoadCodes(pass.frames[f], group, n);
    const uint32_t high = (codes.x >> 1 & kEven) | (codes.y & ~kEven);
    const uint32_t low = (codes.x & kEven) | (codes.y << 1 & ~kEven);
    const uint32_t two = high & low;
    const uint32_t carry0 = planes[0] & ~high;
    planes[0] ^= ~high;
    uint32_t carry = (planes[1] & two) | ((planes[1] ^ two) & carry0);
    planes[1] ^= two ^ carry0;
#pragma unroll
    for (int p = 2; p < kPlanes; ++p) {
      const uint32_t next = planes[p] & carry;
      planes[p] ^= carry;
      carry = next;
    }
  }
}

// From code order to element order.
__device__ inline uint32_t ElementOrder(uint32_t plane) {
  // Now element i < 16 is bit 2i + 1 and element i + 16 is bit 2i.
  uint32_t x = __byte_perm(__brev(plane), 0, 0x0123);
  // Even bits to the lower half, odd ones to the upper.
  uint32_t t = (x ^ (x >> 1)) & 0x22222222u;
  x ^= t ^ (t << 1);
  t = (x ^ (x >> 2)) & 0x0C0C0C0Cu;
  x ^= t ^ (t << 2);
  t = (x ^ (x >> 4)) & 0x00F000F0u;
  x ^= t ^ (t << 4);
  t = (x ^ (x >> 8)) & 0x0000FF00u;
  x ^= t ^ (t << 8);
  return x >> 16 | x << 16;
}

// The bit, in a plane, of the first of the four elements that lane `lane`
// takes of its group, and the distance to the next one's.
template <bool kCodeOrder>
__device__ inline int FirstBit(unsigned lane) {
  const int quad = static_cast<int>(lane % 8);
  return kCodeOrder ? 8 * (quad % 4) + quad / 4 + 6 : 4 * quad;
}

// Values (k + W) of four elements from the words of their group.
template <bool kCodeOrder>
__device__ inline void ValuesOf4(const uint32_t* words, uint32_t bits,
                                 unsigned lane, int (&values)[4]) {
  constexpr int kStep = kCodeOrder ? -2 : 1;
  const int first = FirstBit<kCodeOrder>(lane);
#pragma unroll
  for (int j = 0; j < 4; ++j) values[j] = 0;
  for (uint32_t p = 0; p < bits; ++p) {
    const uint32_t word = words[p];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j] |= static_cast<int>(word >> (first + kStep * j) & 1u) << p;
    }
  }
}

}  // namespace telegrad::kernels::cuda
