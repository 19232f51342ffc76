// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_TWO_BIT_CODES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_TWO_BIT_CODES_INL_H_
#undef TELEGRAD_KERNELS_CPU_TWO_BIT_CODES_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_TWO_BIT_CODES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"

// Words of 2-bit codes out of masks.
HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// What the encoders make at once: whole words of codes.
constexpr size_t kCodeBlock = 4 * kLanes;

// Which of kLanes elements are sent as t and as -t.
struct Signs {
  hn::Mask<DU> positive;
  hn::Mask<DU> negative;
};

// Codes 11 and 10 at the place that lane l's element has in its byte: in the
// lowest byte of lane l where masks are no vectors, else in all four.
struct CodeLanes {
  VU positive;
  VU negative;
};
HWY_INLINE CodeLanes MakeCodeLanes() {
  constexpr uint32_t kRepeat = kHasMaskRegisters ? 1 : 0x01010101;
  alignas(16) static constexpr uint32_t kPositive[4] = {
      kRepeat * 3 << 6, kRepeat * 3 << 4, kRepeat * 3 << 2, kRepeat * 3};
  alignas(16) static constexpr uint32_t kNegative[4] = {
      kRepeat * 2 << 6, kRepeat * 2 << 4, kRepeat * 2 << 2, kRepeat * 2};
  const DU du;
  return {hn::LoadDup128(du, kPositive), hn::LoadDup128(du, kNegative)};
}

// Byte p of lane l becomes the code, in its place, of lane l of signs(p), p
// < 4.
template <class SignsAt>
HWY_INLINE VU CodesOf(CodeLanes code, const SignsAt& signs) {
  if constexpr (kHasMaskRegisters) {
    // One at a time: there are seven masks to choose by.
    VU lanes = hn::Zero(DU());
    for (size_t p = 4; p-- > 0;) {
      const Signs at = signs(p);
      const VU codes =
          hn::IfThenElse(at.negative, code.negative,
                         hn::IfThenElseZero(at.positive, code.positive));
      lanes = hn::Or(hn::ShiftLeft<8>(lanes), codes);
    }
    return lanes;
  } else {
    const Signs a = signs(0);
    const Signs b = signs(1);
    const Signs c = signs(2);
    const Signs d = signs(3);
    return hn::Or(
        hn::And(BytesOf(a.positive, b.positive, c.positive, d.positive),
                code.positive),
        hn::And(BytesOf(a.negative, b.negative, c.negative, d.negative),
                code.negative));
  }
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
