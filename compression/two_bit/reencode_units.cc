#include "compression/two_bit/reencode_units.h"

#include <algorithm>
#include <bit>
#include <span>

namespace telegrad {
namespace {

constexpr int64_t kLargestResidual = int64_t{1} << 28;

void Refine(std::span<int32_t> residuals, int bits) {
  for (int32_t& residual : residuals) {
    const int64_t wide = int64_t{residual} * (int64_t{1} << std::min(bits, 30));
    residual = static_cast<int32_t>(
        std::clamp(wide, -kLargestResidual, kLargestResidual));
  }
}

void Coarsen(std::span<int32_t> residuals, int bits) {
  const int shift = std::min(bits, 31);
  for (int32_t& residual : residuals) {
    const int64_t half = int64_t{1} << (shift - 1);
    residual = static_cast<int32_t>((int64_t{residual} + half) >> shift);
  }
}

}  // namespace

uint32_t ReencodeQuantum(uint32_t num_payloads) {
  return std::bit_ceil(num_payloads);
}

uint32_t AdoptScale(int16_t scale, size_t num_elems, ReencodeState& state) {
  if (!state.is_set) {
    if (state.residual.size() != 4 * num_elems) {
      state.residual = Buffer(4 * num_elems);
    }
    state.unit_scale = scale;
    state.is_set = true;
  }
  const std::span<int32_t> residuals(state.residual.as<int32_t>(), num_elems);
  const int grown = scale - state.unit_scale;
  if (grown < 0) {
    Refine(residuals, -grown);
    state.unit_scale = scale;
  } else if (grown > kMaxUnitShift) {
    Coarsen(residuals, grown - kCoarseUnits);
    state.unit_scale = static_cast<int16_t>(scale - kCoarseUnits);
  }
  return static_cast<uint32_t>(scale - state.unit_scale);
}

}  // namespace telegrad
