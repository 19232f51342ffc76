#pragma once

#include "kernels/batch.h"
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

// The operations on the current CUDA device, queued on `stream`. Pointers are
// the device's, aligned to their type; faster where they are aligned to 16
// bytes. A failed launch is seen at the next cudaGetLastError: TakeLaunchError.
// C++17.
namespace telegrad::kernels::cuda {

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

EncodeManyFn TwoBitEncodeMany;
EncodeManyFn TwoBitEncodeManyFp16;
EncodeManyFn TwoBitEncodeManyBf16;
EncodeManyFn RadixEncodeMany;
EncodeManyFn OneBitEncodeMany;
EncodeManyFn BlockSignEncodeMany;
EncodeManyFn QuantizeMany;
EncodeManyFn SharedQuantizeMany;
EncodeManyFn ThresholdEncodeMany;
EncodeManyFn ThresholdEncodeManyFp16;
EncodeManyFn ThresholdEncodeManyBf16;
EncodeManyFn TopKEncodeMany;
EncodeManyFn CastManyFp16;
EncodeManyFn CastManyBf16;
SampledPowerManyFn SampledPowerMany;
PushMomentumManyFn PushMomentumMany;
DecodeManyFn TwoBitDecodeMany;
DecodeManyFn PackedSumDecodeMany;
DecodeManyFn BlockDecodeMany;
DecodeManyFn RadixDecodeMany;
DecodeManyFn RadixSumDecodeMany;
DecodeManyFn SharedDecodeMany;
DecodeManyFn CastDecodeManyFp16;
DecodeManyFn CastDecodeManyBf16;
DecodeManyFn OneBitDecodeMany;
DecodeManyFn CountDecodeMany;
DecodeManyFn BlockSignDecodeMany;
DecodeManyFn SignListDecodeMany;
DecodeManyFn ValueListDecodeMany;
DecodeManyFn DrawnDecodeMany;
DecodeManyFn TopDecodeMany;
DecodeManyFn LowRankDecodeMany;

}  // namespace telegrad::kernels::cuda
