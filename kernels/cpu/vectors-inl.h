// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_VECTORS_INL_H_
#undef TELEGRAD_KERNELS_CPU_VECTORS_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_VECTORS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLineBytes = 64;

// The lines of kBytes from `ahead` bytes behind `at` on; a kernel asks
// PrefetchBytes() for `ahead` once per call. Past the end of arrays it is
// harmless.
template <size_t kBytes>
HWY_INLINE void PrefetchRead(const void* at, size_t ahead) {
  const char* from = static_cast<const char*>(at) + ahead;
  for (size_t b = 0; b < kBytes; b += kLineBytes) {
    __builtin_prefetch(from + b, 0);
  }
}
template <size_t kBytes>
HWY_INLINE void PrefetchWrite(const void* at, size_t ahead) {
  const char* from = static_cast<const char*>(at) + ahead;
  for (size_t b = 0; b < kBytes; b += kLineBytes) PrefetchForWrite(from + b);
}
// For code that does not ask.
template <size_t kBytes>
HWY_INLINE void PrefetchRead(const void* at) {
  PrefetchRead<kBytes>(at, PrefetchBytes());
}
template <size_t kBytes>
HWY_INLINE void PrefetchWrite(const void* at) {
  PrefetchWrite<kBytes>(at, PrefetchBytes());
}

#if HWY_TARGET != HWY_SCALAR

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
constexpr size_t kLanes = hn::MaxLanes(DF());
static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16);

// What the encoders make at once: whole words of codes.
constexpr size_t kCodeBlock = 4 * kLanes;
constexpr size_t kCodeBlockBytes = kCodeBlock / 4;

HWY_INLINE bool AllFinite(VF a, VF b, VF c, VF d) {
  const DI di;
  const VI magnitude = hn::Set(di, 0x7FFFFFFF);
  const VI x = hn::And(hn::BitCast(di, a), magnitude);
  const VI y = hn::And(hn::BitCast(di, b), magnitude);
  const VI z = hn::And(hn::BitCast(di, c), magnitude);
  const VI w = hn::And(hn::BitCast(di, d), magnitude);
  const VI most = hn::Max(hn::Max(x, y), hn::Max(z, w));
  return hn::AllTrue(di, hn::Lt(most, hn::Set(di, 0x7F800000)));
}

// Codes 11 and 10 at the place that lane l's element has in its byte.
struct CodeLanes {
  VU positive;
  VU negative;
};
HWY_INLINE CodeLanes MakeCodeLanes() {
  alignas(16) static constexpr uint32_t kPositive[4] = {3u << 6, 3u << 4,
                                                        3u << 2, 3u};
  alignas(16) static constexpr uint32_t kNegative[4] = {2u << 6, 2u << 4,
                                                        2u << 2, 2u};
  const DU du;
  return {hn::LoadDup128(du, kPositive), hn::LoadDup128(du, kNegative)};
}

// Stores the codes of kCodeBlock elements; byte p of lane l holds the code,
// in its place, of element p * kLanes + l. Returns how many are not 0.
template <class D>
HWY_INLINE size_t StoreCodes(D du, hn::Vec<D> lanes, uint8_t* codes) {
  constexpr size_t kN = hn::MaxLanes(D());
  // Now byte p of every lane of a 128-bit block b is code byte
  // p * kLanes / 4 + b.
  lanes = hn::Or(lanes, hn::Shuffle2301(lanes));
  lanes = hn::Or(lanes, hn::Shuffle1032(lanes));
  constexpr uint64_t kHighBits = 0xAAAAAAAAAAAAAAAA;
  if constexpr (kN == 4) {
    const uint32_t word = hn::GetLane(lanes);
    std::memcpy(codes, &word, sizeof(word));
    return static_cast<size_t>(
        std::popcount(word & static_cast<uint32_t>(kHighBits)));
  } else if constexpr (kN == 8) {
    const hn::Full128<uint8_t> d8;
    const hn::Half<D> dh;
    const auto even = hn::BitCast(d8, hn::LowerHalf(dh, lanes));
    const auto odd = hn::BitCast(d8, hn::UpperHalf(dh, lanes));
    const auto bytes = hn::InterleaveLower(d8, even, odd);
    const uint64_t word =
        hn::GetLane(hn::BitCast(hn::Full128<uint64_t>(), bytes));
    std::memcpy(codes, &word, sizeof(word));
    return static_cast<size_t>(std::popcount(word & kHighBits));
  } else {
    alignas(64) static constexpr uint32_t kBlocks[16] = {
        0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12};
    alignas(16) static constexpr uint8_t kTranspose[16] = {
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const hn::Full128<uint8_t> d8;
    const hn::Half<D> dh;
    const hn::Half<decltype(dh)> dq;
    const auto words =
        hn::TableLookupLanes(lanes, hn::SetTableIndices(du, kBlocks));
    const auto low = hn::LowerHalf(dq, hn::LowerHalf(dh, words));
    const auto bytes =
        hn::TableLookupBytes(hn::BitCast(d8, low), hn::Load(d8, kTranspose));
    hn::StoreU(bytes, d8, codes);
    uint64_t halves[2];
    std::memcpy(halves, codes, sizeof(halves));
    return static_cast<size_t>(std::popcount(halves[0] & kHighBits) +
                               std::popcount(halves[1] & kHighBits));
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
