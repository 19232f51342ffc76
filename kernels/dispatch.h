#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
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

namespace telegrad::kernels {

// One implementation of every operation. All tables give the same bits.
struct KernelTable {
  const char* name = "";  // "reference", "cpu/AVX2", "cuda/NVIDIA H200"
  DeviceKind device = DeviceKind::kCpu;
  int ordinal = 0;
  // Zero-filled memory of a device of this kind; an empty buffer where there is
  // none left. A GPU's is from a pool, ready in the order of `stream`, and
  // given back in that order.
  Buffer (*make_buffer)(size_t size, int ordinal, Stream stream) = nullptr;
  TwoBitEncodeFn* two_bit_encode = nullptr;
  TwoBitEncodeHalfFn* two_bit_encode_fp16 = nullptr;
  TwoBitEncodeHalfFn* two_bit_encode_bf16 = nullptr;
  TwoBitDecodeFn* two_bit_decode = nullptr;
  TwoBitDecodeAddFn* two_bit_decode_add = nullptr;
  TwoBitSumPackFn* two_bit_sum_pack = nullptr;
  PackedSumDecodeFn* packed_sum_decode = nullptr;
  TwoBitReencodeFn* two_bit_reencode = nullptr;
  RescaleUnitsFn* rescale_units = nullptr;
  TwoBitSumDecodeFn* two_bit_sum_decode = nullptr;
  AddF32Fn* add_f32 = nullptr;
  ScaleF32Fn* scale_f32 = nullptr;
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
  OptimizerKernels optimizer;
  BlockTopKernels block_top;
  BatchKernels batch = {};  // none on a CPU
};

// The plain scalar definition of every operation.
const KernelTable& ReferenceKernels();

// The fastest for this CPU, chosen at run time.
const KernelTable& CpuKernels();

// A GPU's, or null with the reason in `why_not` (may be null): not built in, no
// driver, no such device, none that these kernels were compiled for. Any error
// of the probe means "no device". Kernels are queued within a DeviceScope of
// that GPU.
const KernelTable* CudaKernels(int ordinal, std::string* why_not);
// Whether the driver has any GPU, by its count alone: nothing of one is used.
bool HasCudaDevice(std::string* why_not);
// The first one's.
inline const KernelTable* CudaKernels(std::string* why_not) {
  return CudaKernels(0, why_not);
}

// Every table that runs on this machine's CPU (reference, each SIMD target that
// this CPU supports), for tests.
std::vector<const KernelTable*> AllCpuKernels();

}  // namespace telegrad::kernels
