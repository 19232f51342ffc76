#pragma once

#include "kernels/code_sum.h"
#include "kernels/dense.h"
#include "kernels/two_bit.h"

// The plain scalar definition of every operation: what the others are tested
// against, and what they use for tails. C++17, for perf/gpu_check.
namespace telegrad::kernels::reference {

TwoBitEncodeFn TwoBitEncode;
TwoBitDecodeFn TwoBitDecode;
TwoBitDecodeAddFn TwoBitDecodeAdd;
TwoBitSumPackFn TwoBitSumPack;
PackedSumDecodeFn PackedSumDecode;
TwoBitReencodeFn TwoBitReencode;
TwoBitSumDecodeFn TwoBitSumDecode;
AddF32Fn AddF32;
CountNonFiniteFn CountNonFinite;
SgdMomentumFn SgdMomentum;
SampledPowerFn SampledPower;

}  // namespace telegrad::kernels::reference
