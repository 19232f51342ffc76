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

// Whole numbers from -8 to 8: sums are exact in any order, in 16 bits, too.
void FillGradient(int worker, size_t n, float* gradient);
// That `sums` are those of `num_workers` gradients; DataLoss names `worker`,
// the first wrong element, its value and the right one.
absl::Status VerifySums(int worker, int num_workers, size_t n,
                        const float* sums);

}  // namespace telegrad::perf
