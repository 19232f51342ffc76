#include "kernels/cuda/probe.h"

#include <cuda_runtime_api.h>

#include <mutex>
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

// Each device is probed when it is asked for: that takes some hundred megabytes
// of its memory for this process.
class Probes {
 public:
  // Any error means that there is no device.
  Probes() {
    int num_devices = 0;
    cudaError_t error = cudaGetDeviceCount(&num_devices);
    if (error == cudaSuccess && num_devices == 0) error = cudaErrorNoDevice;
    if (error != cudaSuccess) {
      cudaGetLastError();
      why_none_ = std::string("cuda: ") + cudaGetErrorString(error);
      return;
    }
    devices_ = std::vector<Entry>(static_cast<size_t>(num_devices));
  }

  bool HasAny(std::string* why_not) const {
    *why_not = why_none_;
    return why_none_.empty();
  }

  const KernelTable* Find(int ordinal, std::string* why_not) {
    if (!HasAny(why_not)) return nullptr;
    if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices_.size()) {
      *why_not = "cuda:" + std::to_string(ordinal) + ": there are " +
                 std::to_string(devices_.size()) + " devices, counted from 0";
      return nullptr;
    }
    Entry& entry = devices_[static_cast<size_t>(ordinal)];
    std::call_once(entry.once, [&] {
      entry.probe = ProbeDevice(ordinal);
      entry.probe.table.name = entry.probe.name.c_str();
    });
    *why_not = entry.probe.why_not;
    return why_not->empty() ? &entry.probe.table : nullptr;
  }

 private:
  struct Entry {
    std::once_flag once;
    Probe probe;
  };
  std::string why_none_;
  std::vector<Entry> devices_;
};

BatchKernels MakeBatchTable() {
  return {.two_bit = TwoBitEncodeMany,
          .two_bit_fp16 = TwoBitEncodeManyFp16,
          .two_bit_bf16 = TwoBitEncodeManyBf16,
          .radix = RadixEncodeMany,
          .one_bit = OneBitEncodeMany,
          .block_sign = BlockSignEncodeMany,
          .quantize = QuantizeMany,
          .shared_quantize = SharedQuantizeMany,
          .threshold = ThresholdEncodeMany,
          .threshold_fp16 = ThresholdEncodeManyFp16,
          .threshold_bf16 = ThresholdEncodeManyBf16,
          .top_k = TopKEncodeMany,
          .fp16 = CastManyFp16,
          .bf16 = CastManyBf16,
          .sampled_power = SampledPowerMany,
          .push_momentum = PushMomentumMany,
          .two_bit_decode = TwoBitDecodeMany,
          .packed_sum_decode = PackedSumDecodeMany,
          .block_decode = BlockDecodeMany,
          .radix_decode = RadixDecodeMany,
          .radix_sum_decode = RadixSumDecodeMany,
          .shared_decode = SharedDecodeMany,
          .fp16_decode = CastDecodeManyFp16,
          .bf16_decode = CastDecodeManyBf16,
          .one_bit_decode = OneBitDecodeMany,
          .count_decode = CountDecodeMany,
          .block_sign_decode = BlockSignDecodeMany,
          .sign_list_decode = SignListDecodeMany,
          .value_list_decode = ValueListDecodeMany,
          .drawn_decode = DrawnDecodeMany,
          .top_decode = TopDecodeMany,
          .low_rank_decode = LowRankDecodeMany};
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
          .batch = MakeBatchTable()};
}

Probes& AllProbes() {
  static auto* const probes = new Probes;  // tables outlive static objects
  return *probes;
}

}  // namespace

bool HasDevice(std::string* why_not) {
  std::string reason;
  const bool has_any = AllProbes().HasAny(&reason);
  if (!has_any && why_not != nullptr) *why_not = reason;
  return has_any;
}

const KernelTable* ProbedKernels(int ordinal, std::string* why_not) {
  std::string reason;
  const KernelTable* const table = AllProbes().Find(ordinal, &reason);
  if (table == nullptr && why_not != nullptr) *why_not = reason;
  return table;
}

}  // namespace telegrad::kernels::cuda
