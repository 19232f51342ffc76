#pragma once

#include "kernels/block.h"
#include "kernels/block_top.h"
#include "kernels/cast.h"
#include "kernels/code_sum.h"
#include "kernels/dense.h"
#include "kernels/drawn.h"
#include "kernels/low_rank.h"
#include "kernels/optimizer.h"
#include "kernels/radix.h"
#include "kernels/select.h"
#include "kernels/sign.h"
#include "kernels/sparse.h"
#include "kernels/sparse_list.h"
#include "kernels/two_bit.h"

// The plain scalar definition of every operation: what the others are tested
// against, and what they use for tails.
namespace telegrad::kernels::reference {

TwoBitEncodeFn TwoBitEncode;
TwoBitEncodeHalfFn TwoBitEncodeFp16;
TwoBitEncodeHalfFn TwoBitEncodeBf16;
TwoBitDecodeFn TwoBitDecode;
TwoBitDecodeAddFn TwoBitDecodeAdd;
TwoBitSumPackFn TwoBitSumPack;
PackedSumDecodeFn PackedSumDecode;
TwoBitReencodeFn TwoBitReencode;
RescaleUnitsFn RescaleUnits;
TwoBitSumDecodeFn TwoBitSumDecode;
AddF32Fn AddF32;
ScaleF32Fn ScaleF32;
CountNonFiniteFn CountNonFinite;
CopyFn Copy;
PutFn Put;
SgdMomentumFn SgdMomentum;
SampledPowerFn SampledPower;

// The newer families, whole.
CastKernels Cast();
SignKernels Sign();
BlockKernels Block();
SparseKernels Sparse();
SparseListKernels SparseList();
SelectKernels Select();
DrawnKernels Drawn();
RadixKernels Radix();
LowRankKernels LowRank();
OptimizerKernels Optimizer();
BlockTopKernels BlockTop();

}  // namespace telegrad::kernels::reference
