#include "kernels/cuda/probe.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/device_buffer.h"

namespace telegrad::kernels::cuda {
namespace {

struct Probe {
  std::string name;
  std::string why_not;
};

// Any error means that there is no device.
Probe ProbeDevices() {
  Probe probe;
  int num_devices = 0;
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error == cudaSuccess && num_devices == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, 0);
  if (error != cudaSuccess) {
    probe.why_not = std::string("cuda: ") + cudaGetErrorString(error);
    return probe;
  }
  probe.name = std::string("cuda/") + properties.name;
  return probe;
}

KernelTable MakeTable() {
  return {.name = "",
          .device = DeviceKind::kCuda,
          .make_buffer = MakeDeviceBuffer,
          .two_bit_encode = TwoBitEncode,
          .two_bit_encode_fp16 = TwoBitEncodeFp16,
          .two_bit_encode_bf16 = TwoBitEncodeBf16,
          .two_bit_decode = TwoBitDecode,
          .two_bit_decode_add = TwoBitDecodeAdd,
          .two_bit_decode_sgd = TwoBitDecodeSgd,
          .two_bit_sum_pack = TwoBitSumPack,
          .packed_sum_decode = PackedSumDecode,
          .packed_sum_decode_sgd = PackedSumDecodeSgd,
          .two_bit_reencode = TwoBitReencode,
          .rescale_units = RescaleUnits,
          .two_bit_sum_decode = TwoBitSumDecode,
          .add_f32 = AddF32,
          .count_nonfinite = CountNonFinite,
          .copy = Copy,
          .put = Put,
          .sgd_momentum = SgdMomentum,
          .sampled_power = SampledPower,
          .cast = Cast(),
          .sign = Sign(),
          .block = Block(),
          .sparse = Sparse(),
          .sparse_list = SparseList(),
          .select = Select(),
          .drawn = Drawn(),
          .radix = Radix(),
          .low_rank = LowRank()};
}

}  // namespace

const KernelTable* ProbedKernels(std::string* why_not) {
  static const Probe probe = ProbeDevices();
  static const KernelTable table = [] {
    KernelTable made = MakeTable();
    made.name = probe.name.c_str();
    return made;
  }();
  if (probe.why_not.empty()) return &table;
  if (why_not != nullptr) *why_not = probe.why_not;
  return nullptr;
}

}  // namespace telegrad::kernels::cuda
