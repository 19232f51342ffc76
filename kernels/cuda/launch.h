#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"

// What all kernels share: shapes of launches, access to memory.
namespace telegrad::kernels::cuda {

constexpr unsigned kThreads = 256;
// On a multiprocessor. Said, so that the compiler does not keep what a kernel
// needs only at its end in local memory to fit more blocks.
constexpr unsigned kLeastBlocks = 1;
constexpr unsigned kWarp = 32;
// 8 blocks of 256 threads fill a multiprocessor (2048 threads); twice as many
// even out the ends.
constexpr size_t kBlocksPerMultiprocessor = 16;

inline cudaStream_t StreamOf(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

// Blocks for `items`, one to a thread, in a grid-stride loop; at least 1.
inline unsigned GridFor(size_t items) {
  int device = 0;
  int multiprocessors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                         device);
  const size_t most =
      static_cast<size_t>(multiprocessors) * kBlocksPerMultiprocessor;
  const size_t wanted = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

inline bool IsAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

__device__ inline size_t GlobalThread() {
  return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline size_t NumThreads() {
  return static_cast<size_t>(gridDim.x) * blockDim.x;
}

// Elements [i, i + 4) of an array of n, in one access if kVector (i a multiple
// of 4 and the array aligned to 16 bytes) and all of them exist; else one by
// one, and 0 past the end.
template <bool kVector, typename T>
__device__ inline void Load4(const T* from, size_t i, size_t n, T (&to)[4]) {
  static_assert(sizeof(T) == 4, "a vector access is 16 bytes");
  if (kVector && i + 4 <= n) {
    const uint4 words = *reinterpret_cast<const uint4*>(from + i);
    memcpy(to, &words, sizeof(words));
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j] = i + j < n ? from[i + j] : T(0);
}

template <bool kVector, typename T>
__device__ inline void Store4(const T (&values)[4], size_t i, size_t n, T* to) {
  static_assert(sizeof(T) == 4, "a vector access is 16 bytes");
  if (kVector && i + 4 <= n) {
    uint4 words;
    memcpy(&words, values, sizeof(words));
    *reinterpret_cast<uint4*>(to + i) = words;
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (i + j < n) to[i + j] = values[j];
  }
}

__device__ inline uint64_t WarpSum(uint64_t value) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_down_sync(0xFFFFFFFFu, value, step);
  }
  return value;
}

__device__ inline bool IsFinite(float value) {
  return (__float_as_uint(value) & 0x7FFFFFFFu) < 0x7F800000u;
}

}  // namespace telegrad::kernels::cuda
