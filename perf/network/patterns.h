#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/bytes.h"

// What messages and gradients hold, and how results are verified.
namespace telegrad::perf {

// Bytes that differ from seed to seed.
void FillBytes(uint32_t seed, Bytes memory);
// DataLoss names `rank`, the first wrong byte, its value and the right one.
absl::Status VerifyBytes(int rank, uint32_t seed, ConstBytes memory);

// The n elements from `first` on of an endless sequence of whole numbers from
// -8 to 8: sums are exact in any order, in 16 bits, too.
void FillGradient(int worker, size_t first, size_t n, float* gradient);

// Where in that sequence the gradient of a step begins: another place in each,
// so that an element's values scatter around 0. With the same value in each
// step, those of one size would reach a codec's threshold all at once.
constexpr size_t kShifts = 4096;
constexpr size_t kMaxShift = 16 * (kShifts - 1);
constexpr size_t ShiftAt(int64_t step) {
  return static_cast<size_t>(step) * 1601 % kShifts * 16;  // 64 bytes apart
}

}  // namespace telegrad::perf
