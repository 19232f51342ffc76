#pragma once

#include <atomic>
#include <cstddef>
#include <limits>

#include "kernels/two_bit.h"

// How CPU kernels reach memory, which changes no result: how far ahead of its
// use they ask for it, and whether what only writes an array does so past the
// caches. What is best depends on the memory's latency and rate, which a CPU's
// name does not tell.
namespace telegrad::kernels {

inline std::atomic<size_t> prefetch_bytes = 1024;

// The process's distance; a kernel reads it once per call.
inline size_t PrefetchBytes() {
  return prefetch_bytes.load(std::memory_order_relaxed);
}
inline void SetPrefetchBytes(size_t bytes) {
  prefetch_bytes.store(bytes, std::memory_order_relaxed);
}

// Sets the distance at which `encode` is fastest in memory, of 0, 512, 1024,
// 2048 and 4096 bytes, in about 10 ms; or the one that TELEGRAD_PREFETCH says
// (0 to 65536). What no measurement prefers clearly stays 1024; 0 must be
// clearly best.
void ChoosePrefetchBytes(TwoBitEncodeFn* encode);

// Arrays of so many bytes and more are written past the caches: then their
// lines are not read before, and nothing else leaves the caches for them.
inline std::atomic<size_t> streaming_bytes = std::numeric_limits<size_t>::max();
inline size_t StreamingBytes() {
  return streaming_bytes.load(std::memory_order_relaxed);
}
inline void SetStreamingBytes(size_t bytes) {
  streaming_bytes.store(bytes, std::memory_order_relaxed);
}

// Sets 1 MiB if `decode` into memory that is in no cache is not slower by it,
// in about 10 ms, else all that there are; or what TELEGRAD_STREAMING says.
void ChooseStreamingBytes(TwoBitDecodeFn* decode);

// Asks for a line that will be written: at once in a state in which it can be.
inline void PrefetchForWrite(const void* line) {
#if defined(__x86_64__)
  // GCC makes __builtin_prefetch(.., 1) a read unless it compiles for a CPU
  // with this instruction; CPUs without it take it for no operation.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace telegrad::kernels
