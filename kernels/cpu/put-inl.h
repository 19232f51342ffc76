// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_PUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_PUT_INL_H_
#undef TELEGRAD_KERNELS_CPU_PUT_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_PUT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// How a kernel leaves what it makes: onto what the array holds, over it, or
// over it past the caches.
enum class Put { kAdd, kOver, kStream };

// For so many bytes from `out` on, which are all written over.
HWY_INLINE bool StreamsBytes(const void* out, size_t num_bytes) {
  return num_bytes >= StreamingBytes() &&
         reinterpret_cast<uintptr_t>(out) % (4 * kLanes) == 0;
}
// For n floats.
HWY_INLINE bool Streams(const float* out, size_t n) {
  return StreamsBytes(out, 4 * n);
}

// Before kBytes from `ahead` bytes behind `at` on are put.
template <Put kPut, size_t kBytes>
HWY_INLINE void PrefetchPut(const void* at, size_t ahead) {
  if constexpr (kPut != Put::kStream) PrefetchWrite<kBytes>(at, ahead);
}

template <Put kPut>
HWY_INLINE void PutLanes(VF value, float* out) {
  const DF df;
  if constexpr (kPut == Put::kStream) {
    hn::Stream(value, df, out);
  } else {
    if constexpr (kPut == Put::kAdd) value = hn::Add(hn::LoadU(df, out), value);
    hn::StoreU(value, df, out);
  }
}

// Puts a vector of codes at a border of its size over what is there.
template <Put kPut, class D>
HWY_INLINE void PutCodes(D d, hn::Vec<D> codes, hn::TFromD<D>* to) {
  constexpr size_t kBytes = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
  // Streaming less than a vector of 16 bytes would write 16.
  if constexpr (kPut == Put::kStream && kBytes >= 16) {
    hn::Stream(codes, d, to);
  } else {
    hn::StoreU(codes, d, to);
  }
}

// After the last value: what streamed is then in order with other stores.
template <Put kPut>
HWY_INLINE void EndPut() {
  if constexpr (kPut == Put::kStream) hwy::FlushStream();
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
