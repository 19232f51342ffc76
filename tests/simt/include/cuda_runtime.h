#pragma once

#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>

#include "tests/simt/simt.h"

// CUDA C++ as far as our kernels use it. tests/simt/translate.py rewrites what
// is no C++: launches and __shared__ variables. Where this header lacks
// something, compiling fails.

#define __CUDACC__ 1
#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __builtin_assume(...)

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

// Of one dimension, as all our grids are. The emulator sets them.
struct SimtIndex {
  unsigned x;
};
inline thread_local SimtIndex threadIdx;
inline thread_local SimtIndex blockIdx;
inline thread_local SimtIndex blockDim;
inline thread_local SimtIndex gridDim;

template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}

namespace telegrad::simt {

template <typename To, typename From>
To Bits(From from) {
  static_assert(sizeof(To) >= sizeof(From), "bits would be lost");
  To to = {};
  memcpy(&to, &from, sizeof(from));
  return to;
}
template <typename T>
T FromBits(uint64_t bits) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles are of 4, 8 bytes");
  T value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// What `kernel<<<...>>>(arguments)` becomes: kernel | Grid(...).With(arguments)
template <typename... A>
struct Call {
  Shape shape;
  cudaStream_t stream;
  std::tuple<A...> arguments;
};
class Grid {
 public:
  Grid(unsigned blocks, unsigned threads, size_t dynamic_shared_bytes = 0,
       cudaStream_t stream = nullptr)
      : shape_{blocks, threads, dynamic_shared_bytes}, stream_(stream) {}
  template <typename... A>
  Call<std::decay_t<A>...> With(A&&... arguments) const {
    return {shape_, stream_, {arguments...}};
  }

 private:
  Shape shape_;
  cudaStream_t stream_;
};
template <typename... P, typename... A>
void operator|(void (*kernel)(P...), const Call<A...>& call) {
  static_assert((0 + ... + sizeof(P)) <= 4096, "a kernel's parameters: 4 KiB");
  const std::tuple<P...> parameters(call.arguments);
  NoteKernel(reinterpret_cast<const void*>(kernel));
  Launch(call.shape, call.stream,
         [kernel, parameters] { std::apply(kernel, parameters); });
}

// A __shared__ variable; `place` is one for each in a kernel.
template <typename T>
T& Shared(const void* place) {
  return *static_cast<T*>(SharedMemory(place, sizeof(T)));
}

}  // namespace telegrad::simt

struct cudaFuncAttributes {
  int numRegs;
};
template <typename F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F*) {
  *attributes = {};
  return cudaSuccess;
}

inline void __syncthreads() { telegrad::simt::SyncBlock(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) {
  telegrad::simt::GatherWarp("__syncwarp", mask, 0);
}

inline void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  const uint64_t* const lanes =
      telegrad::simt::GatherWarp("__ballot_sync", mask, predicate);
  unsigned ballot = 0;
  for (unsigned l = 0; l < 32; ++l) ballot |= lanes[l] != 0 ? 1u << l : 0u;
  return ballot;
}
inline int __any_sync(unsigned mask, bool predicate) {
  return __ballot_sync(mask, predicate) != 0;
}

// Lanes of other parts of `width` lanes are out of reach: one's own value.
template <typename T>
T __shfl_sync(unsigned mask, T value, unsigned from, unsigned width = 32) {
  const uint64_t* const lanes = telegrad::simt::GatherWarp(
      "__shfl_sync", mask, telegrad::simt::Bits<uint64_t>(value));
  const unsigned lane = threadIdx.x % 32;
  return telegrad::simt::FromBits<T>(
      lanes[lane / width * width + from % width]);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, unsigned width = 32) {
  const uint64_t* const lanes = telegrad::simt::GatherWarp(
      "__shfl_up_sync", mask, telegrad::simt::Bits<uint64_t>(value));
  const unsigned lane = threadIdx.x % 32;
  return lane % width < delta
             ? value
             : telegrad::simt::FromBits<T>(lanes[lane - delta]);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta,
                   unsigned width = 32) {
  const uint64_t* const lanes = telegrad::simt::GatherWarp(
      "__shfl_down_sync", mask, telegrad::simt::Bits<uint64_t>(value));
  const unsigned lane = threadIdx.x % 32;
  return lane % width + delta >= width
             ? value
             : telegrad::simt::FromBits<T>(lanes[lane + delta]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, unsigned flip, unsigned width = 32) {
  const uint64_t* const lanes = telegrad::simt::GatherWarp(
      "__shfl_xor_sync", mask, telegrad::simt::Bits<uint64_t>(value));
  const unsigned lane = threadIdx.x % 32;
  const unsigned from = lane ^ flip;
  return from / width > lane / width || from >= 32
             ? value
             : telegrad::simt::FromBits<T>(lanes[from]);
}

// Integers only. Each returns what was there before.
template <typename T>
T atomicAdd(T* at, T value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
namespace telegrad::simt {
template <typename T, typename Wins>
T StoreIf(T* at, T value, const Wins& wins) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (wins(value, old) &&
         !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}
}  // namespace telegrad::simt
template <typename T>
T atomicMin(T* at, T value) {
  return telegrad::simt::StoreIf(at, value, std::less<T>());
}
template <typename T>
T atomicMax(T* at, T value) {
  return telegrad::simt::StoreIf(at, value, std::greater<T>());
}

inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline int __ffs(unsigned word) {
  return __builtin_ffs(static_cast<int>(word));
}
inline int __clz(unsigned word) { return word == 0 ? 32 : __builtin_clz(word); }
inline unsigned __brev(unsigned word) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (word >> i & 1u) << (31 - i);
  return reversed;
}
// Byte b of the result is byte (selector >> 4b) % 8 of y:x; the selectors' sign
// bits, which would spread a byte's sign, are not there.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned b = 0; b < 4; ++b) {
    const unsigned from = selector >> (4 * b) & 7u;
    result |= static_cast<unsigned>(bytes >> (8 * from) & 0xFFu) << (8 * b);
  }
  return result;
}
inline unsigned __float_as_uint(float value) {
  return telegrad::simt::Bits<unsigned>(value);
}
inline float __uint_as_float(unsigned bits) {
  return telegrad::simt::Bits<float>(bits);
}
