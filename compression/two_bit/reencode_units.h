#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "compression/codec.h"
#include "kernels/dispatch.h"

namespace telegrad {

// The server's quantum in units of the push threshold: the least power of two
// that is at least W. With a smaller one, agreeing workers would let the
// server's residual grow without bound.
uint32_t ReencodeQuantum(uint32_t num_payloads);

// Makes `state` ready for codes in units of 2^scale and returns the shift that
// brings them to the residual's units. A smaller scale refines the units (exact
// unless a residual would pass 2^28 units, where it stays); when the scale has
// grown by more than kMaxUnitShift, the units grow to scale - kCoarseUnits,
// residuals rounding to nearest: at most 2^-5 of a threshold is lost, once.
// ResourceExhausted where the device has no memory for the residual.
constexpr int kMaxUnitShift = 12;
constexpr int kCoarseUnits = 4;
absl::StatusOr<uint32_t> AdoptScale(int16_t scale, size_t num_elems,
                                    const kernels::KernelTable& table,
                                    ReencodeState& state, Stream stream);

}  // namespace telegrad
