#include "compression/two_bit/reencode_units.h"

#include <bit>

#include "base/status_macros.h"
#include "compression/device_kernels.h"

namespace telegrad {

uint32_t ReencodeQuantum(uint32_t num_payloads) {
  return std::bit_ceil(num_payloads);
}

absl::StatusOr<uint32_t> AdoptScale(int16_t scale, size_t num_elems,
                                    const kernels::KernelTable& table,
                                    ReencodeState& state, Stream stream) {
  if (!state.is_set) {
    RETURN_IF_ERROR(MakeRoom(4 * num_elems, table, state.residual, stream));
    state.unit_scale = scale;
    state.is_set = true;
  }
  auto* const residual = state.residual.as<int32_t>();
  const int grown = scale - state.unit_scale;
  if (grown < 0) {
    table.rescale_units(residual, num_elems, -grown, stream);
    state.unit_scale = scale;
  } else if (grown > kMaxUnitShift) {
    table.rescale_units(residual, num_elems, kCoarseUnits - grown, stream);
    state.unit_scale = static_cast<int16_t>(scale - kCoarseUnits);
  }
  return static_cast<uint32_t>(scale - state.unit_scale);
}

}  // namespace telegrad
