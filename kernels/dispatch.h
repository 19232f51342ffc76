#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "kernels/block.h"
#include "kernels/cast.h"
#include "kernels/code_sum.h"
#include "kernels/dense.h"
#include "kernels/drawn.h"
#include "kernels/low_rank.h"
#include "kernels/radix.h"
#include "kernels/select.h"
#include "kernels/sign.h"
#include "kernels/sparse.h"
#include "kernels/sparse_list.h"
#include "kernels/two_bit.h"

namespace telegrad::kernels {

// One implementation of every operation. All tables give the same bits.
struct KernelTable {
  const char* name = "";  // "reference", "cpu/AVX2", "cuda/NVIDIA H200"
  DeviceKind device = DeviceKind::kCpu;
  // Zero-filled memory of the device (a GPU's: the thread's current one), ready
  // for every stream; an empty buffer where there is none left. Not queued:
  // nothing for the steady state.
  Buffer (*make_buffer)(size_t size) = nullptr;
  TwoBitEncodeFn* two_bit_encode = nullptr;
  TwoBitEncodeHalfFn* two_bit_encode_fp16 = nullptr;
  TwoBitEncodeHalfFn* two_bit_encode_bf16 = nullptr;
  TwoBitDecodeFn* two_bit_decode = nullptr;
  TwoBitDecodeAddFn* two_bit_decode_add = nullptr;
  TwoBitDecodeSgdFn* two_bit_decode_sgd = nullptr;
  TwoBitSumPackFn* two_bit_sum_pack = nullptr;
  PackedSumDecodeFn* packed_sum_decode = nullptr;
  PackedSumDecodeSgdFn* packed_sum_decode_sgd = nullptr;
  TwoBitReencodeFn* two_bit_reencode = nullptr;
  RescaleUnitsFn* rescale_units = nullptr;
  TwoBitSumDecodeFn* two_bit_sum_decode = nullptr;
  AddF32Fn* add_f32 = nullptr;
  CountNonFiniteFn* count_nonfinite = nullptr;
  CopyFn* copy = nullptr;
  PutFn* put = nullptr;
  SgdMomentumFn* sgd_momentum = nullptr;
  SampledPowerFn* sampled_power = nullptr;
  CastKernels cast;
  SignKernels sign;
  BlockKernels block;
  SparseKernels sparse;
  SparseListKernels sparse_list;
  SelectKernels select;
  DrawnKernels drawn;
  RadixKernels radix;
  LowRankKernels low_rank;
};

// The plain scalar definition of every operation.
const KernelTable& ReferenceKernels();

// The fastest for this CPU, chosen at run time.
const KernelTable& CpuKernels();

// The GPU's, or null with the reason in `why_not` (may be null): not built in,
// no driver, no device. Any error of the probe means "no device".
const KernelTable* CudaKernels(std::string* why_not);

// Every table that runs on this machine's CPU (reference, each SIMD target that
// this CPU supports), for tests.
std::vector<const KernelTable*> AllCpuKernels();

}  // namespace telegrad::kernels
