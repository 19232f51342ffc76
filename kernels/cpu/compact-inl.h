// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_COMPACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_COMPACT_INL_H_
#undef TELEGRAD_KERNELS_CPU_COMPACT_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_COMPACT_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// The lanes of `words` that `mask` has, next to each other from lane 0 on.
class Compaction {
 public:
  HWY_INLINE explicit Compaction(hn::Mask<DU> mask)
      : mask_(mask), count_(hn::CountTrue(DU(), mask)) {}
  HWY_INLINE size_t count() const { return count_; }
  HWY_INLINE VU operator()(VU words) const {
    return hn::Compress(words, mask_);
  }

 private:
  const hn::Mask<DU> mask_;
  const size_t count_;
};

#else

// By number of the mask: its lanes, then the others. With four lanes the first
// 16 rows are used, of which the first four numbers are below 4.
static_assert(kLanes <= 8);
constexpr std::array<uint64_t, 256> MakeLanesOfMask() {
  std::array<uint64_t, 256> rows{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned place = 0;
    for (unsigned wanted : {1u, 0u}) {
      for (unsigned lane = 0; lane < 8; ++lane) {
        if ((mask >> lane & 1) != wanted) continue;
        rows[mask] |= uint64_t{lane} << (8 * place++);
      }
    }
  }
  return rows;
}
alignas(64) inline constexpr std::array<uint64_t, 256> kLanesOfMask =
    MakeLanesOfMask();

// Highway 1.0's own Compress keeps its table in a local array, which GCC 12
// copies to the stack in every call.
class Compaction {
 public:
  HWY_INLINE explicit Compaction(hn::Mask<DU> mask) {
    uint8_t bits[8] = {};
    hn::StoreMaskBits(DU(), mask, bits);
    bits_ = bits[0];
  }
  HWY_INLINE size_t count() const {
    return static_cast<size_t>(std::popcount(bits_));
  }
  HWY_INLINE VU operator()(VU words) const {
    const hn::Rebind<uint8_t, DU> d8;
    const auto* row = reinterpret_cast<const uint8_t*>(&kLanesOfMask[bits_]);
    const VU lanes = hn::PromoteTo(DU(), hn::LoadU(d8, row));
    return hn::TableLookupLanes(words, hn::IndicesFromVec(DU(), lanes));
  }

 private:
  unsigned bits_;
};

#endif  // HWY_AVX3

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
