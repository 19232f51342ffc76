#pragma once

#include <cstdint>

#include "kernels/dispatch.h"

// Highway compiles each operation once per SIMD target. These put the entry
// points for `target` (one of hwy::SupportedAndGeneratedTargets()) into a copy
// of the reference's table; what a target lacks stays the reference's.
namespace telegrad::kernels::cpu {

void FillTwoBit(int64_t target, KernelTable& table);
void FillCodeSum(int64_t target, KernelTable& table);
void FillDense(int64_t target, KernelTable& table);
void FillCast(int64_t target, KernelTable& table);
void FillSign(int64_t target, KernelTable& table);
void FillBlock(int64_t target, KernelTable& table);
void FillSparse(int64_t target, KernelTable& table);
void FillRadix(int64_t target, KernelTable& table);
void FillLowRank(int64_t target, KernelTable& table);
void FillOptimizer(int64_t target, KernelTable& table);
void FillBlockTop(int64_t target, KernelTable& table);

}  // namespace telegrad::kernels::cpu
