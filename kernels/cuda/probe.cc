#include "kernels/cuda/probe.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/current_device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/image.h"

namespace telegrad::kernels::cuda {
namespace {

struct Probe {
  std::string name;
  std::string why_not;
  KernelTable table;
};

KernelTable MakeTable();

Probe ProbeDevice(int ordinal) {
  Probe probe;
  const CurrentDevice current(ordinal);
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
  // Not so where the kernels were not compiled for its kind.
  if (error == cudaSuccess) error = TryImage();
  if (error != cudaSuccess) {
    cudaGetLastError();
    probe.why_not = DescribeError(ordinal, error);
    return probe;
  }
  probe.name = std::string("cuda/") + properties.name;
  probe.table = MakeTable();
  probe.table.ordinal = ordinal;
  return probe;
}

struct Probes {
  std::string why_none;
  std::vector<Probe> devices;
};

// Any error means that there is no device.
Probes ProbeDevices() {
  Probes probes;
  int num_devices = 0;
  cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error == cudaSuccess && num_devices == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) {
    cudaGetLastError();
    probes.why_none = std::string("cuda: ") + cudaGetErrorString(error);
    return probes;
  }
  for (int i = 0; i < num_devices; ++i) {
    probes.devices.push_back(ProbeDevice(i));
  }
  for (Probe& probe : probes.devices) probe.table.name = probe.name.c_str();
  return probes;
}

std::string WhyNot(const Probes& probes, int ordinal) {
  if (!probes.why_none.empty()) return probes.why_none;
  const size_t count = probes.devices.size();
  if (ordinal >= 0 && static_cast<size_t>(ordinal) < count) {
    return probes.devices[static_cast<size_t>(ordinal)].why_not;
  }
  return "cuda:" + std::to_string(ordinal) + ": there are " +
         std::to_string(count) + " devices, counted from 0";
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
          .two_bit_sum_pack = TwoBitSumPack,
          .packed_sum_decode = PackedSumDecode,
          .two_bit_reencode = TwoBitReencode,
          .rescale_units = RescaleUnits,
          .two_bit_sum_decode = TwoBitSumDecode,
          .add_f32 = AddF32,
          .scale_f32 = ScaleF32,
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
          .low_rank = LowRank(),
          .optimizer = Optimizer(),
          .block_top = BlockTop(),
          .batch = {.two_bit = TwoBitEncodeMany,
                    .two_bit_fp16 = TwoBitEncodeManyFp16,
                    .two_bit_bf16 = TwoBitEncodeManyBf16,
                    .radix = RadixEncodeMany,
                    .one_bit = OneBitEncodeMany,
                    .block_sign = BlockSignEncodeMany,
                    .quantize = QuantizeMany,
                    .fp16 = CastManyFp16,
                    .bf16 = CastManyBf16,
                    .sampled_power = SampledPowerMany}};
}

}  // namespace

const KernelTable* ProbedKernels(int ordinal, std::string* why_not) {
  static const Probes probes = ProbeDevices();
  const std::string reason = WhyNot(probes, ordinal);
  if (reason.empty()) {
    return &probes.devices[static_cast<size_t>(ordinal)].table;
  }
  if (why_not != nullptr) *why_not = reason;
  return nullptr;
}

}  // namespace telegrad::kernels::cuda
