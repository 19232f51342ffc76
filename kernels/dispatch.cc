#include "kernels/dispatch.h"

#include <atomic>

#include "hwy/targets.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/used_kernels.h"
#include "kernels/device_copy.h"
#include "kernels/device_queue.h"
#include "kernels/device_scope.h"
#include "kernels/frozen_adam.h"
#include "kernels/gather.h"
#include "kernels/host_queue.h"
#include "kernels/normal_adam.h"
#include "kernels/prefetch.h"
#include "kernels/reference.h"
#include "kernels/reference/frozen_adam.h"
#include "kernels/reference/gather.h"
#include "kernels/reference/normal_adam.h"
#include "kernels/tool_range.h"
#if TELEGRAD_WITH_CUDA
#include "kernels/cuda/current_device.h"
#include "kernels/cuda/device_copy.h"
#include "kernels/cuda/device_queue.h"
#include "kernels/cuda/frozen_adam.h"
#include "kernels/cuda/gather.h"
#include "kernels/cuda/normal_adam.h"
#include "kernels/cuda/probe.h"
#endif
#if TELEGRAD_WITH_NVTX
#include "kernels/cuda/tool_range.h"
#endif

namespace telegrad::kernels {
namespace {

struct NamedTable {
  std::string name;
  KernelTable table;
};

NamedTable MakeCpuTable(int64_t target) {
  NamedTable made = {std::string("cpu/") + hwy::TargetName(target),
                     ReferenceKernels()};
  cpu::FillTwoBit(target, made.table);
  cpu::FillCodeSum(target, made.table);
  cpu::FillDense(target, made.table);
  cpu::FillCast(target, made.table);
  cpu::FillSign(target, made.table);
  cpu::FillBlock(target, made.table);
  cpu::FillSparse(target, made.table);
  cpu::FillRadix(target, made.table);
  cpu::FillLowRank(target, made.table);
  cpu::FillOptimizer(target, made.table);
  cpu::FillBlockTop(target, made.table);
  return made;
}

// Best first.
const std::vector<NamedTable>& CpuTables() {
  static const std::vector<NamedTable> tables = [] {
    std::vector<NamedTable> made;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (target != HWY_SCALAR) made.push_back(MakeCpuTable(target));
    }
    for (NamedTable& named : made) named.table.name = named.name.c_str();
    if (!made.empty()) {
      ChoosePrefetchBytes(made[0].table.two_bit_encode);
      ChooseStreamingBytes(made[0].table.two_bit_decode);
    }
    return made;
  }();
  return tables;
}

std::atomic<const KernelTable*> used_table{nullptr};

}  // namespace

const KernelTable& ReferenceKernels() {
  static const KernelTable kTable = {
      .name = "reference",
      .device = DeviceKind::kCpu,
      .make_buffer = [](size_t size, int, Stream) { return Buffer(size); },
      .two_bit_encode = reference::TwoBitEncode,
      .two_bit_encode_fp16 = reference::TwoBitEncodeFp16,
      .two_bit_encode_bf16 = reference::TwoBitEncodeBf16,
      .two_bit_decode = reference::TwoBitDecode,
      .two_bit_decode_add = reference::TwoBitDecodeAdd,
      .two_bit_sum_pack = reference::TwoBitSumPack,
      .packed_sum_decode = reference::PackedSumDecode,
      .two_bit_reencode = reference::TwoBitReencode,
      .rescale_units = reference::RescaleUnits,
      .two_bit_sum_decode = reference::TwoBitSumDecode,
      .add_f32 = reference::AddF32,
      .scale_f32 = reference::ScaleF32,
      .count_nonfinite = reference::CountNonFinite,
      .copy = reference::Copy,
      .put = reference::Put,
      .sgd_momentum = reference::SgdMomentum,
      .sampled_power = reference::SampledPower,
      .cast = reference::Cast(),
      .sign = reference::Sign(),
      .block = reference::Block(),
      .sparse = reference::Sparse(),
      .sparse_list = reference::SparseList(),
      .select = reference::Select(),
      .drawn = reference::Drawn(),
      .radix = reference::Radix(),
      .low_rank = reference::LowRank(),
      .optimizer = reference::Optimizer(),
      .block_top = reference::BlockTop(),
  };
  return kTable;
}

const KernelTable& CpuKernels() {
  const KernelTable* const used = used_table.load(std::memory_order_acquire);
  if (used != nullptr) return *used;
  return CpuTables().empty() ? ReferenceKernels() : CpuTables().front().table;
}

UsedCpuKernels::UsedCpuKernels(const KernelTable* table) {
  used_table.store(table, std::memory_order_release);
}
UsedCpuKernels::~UsedCpuKernels() {
  used_table.store(nullptr, std::memory_order_release);
}

const KernelTable* CudaKernels([[maybe_unused]] int ordinal,
                               std::string* why_not) {
#if TELEGRAD_WITH_CUDA
  return cuda::ProbedKernels(ordinal, why_not);
#else
  if (why_not != nullptr) *why_not = "CUDA kernels are not in this build";
  return nullptr;
#endif
}

bool HasCudaDevice(std::string* why_not) {
#if TELEGRAD_WITH_CUDA
  return cuda::HasDevice(why_not);
#else
  if (why_not != nullptr) *why_not = "CUDA is not in this build";
  return false;
#endif
}

std::unique_ptr<DeviceCopier> MakeCudaCopier(std::string* why_not) {
  if (!HasCudaDevice(why_not)) return nullptr;
#if TELEGRAD_WITH_CUDA
  return cuda::MakeCopier();
#else
  return nullptr;
#endif
}

std::unique_ptr<DeviceQueue> MakeDeviceQueue(Device device,
                                             std::string* why_not) {
  if (device.kind == DeviceKind::kCpu) return MakeHostQueue(device);
  if (CudaKernels(device.ordinal, why_not) == nullptr) return nullptr;
#if TELEGRAD_WITH_CUDA
  return cuda::MakeQueue(device.ordinal);
#else
  return nullptr;
#endif
}

FormerDevice DeviceScope::Enter([[maybe_unused]] int ordinal) {
#if TELEGRAD_WITH_CUDA
  return cuda::EnterDevice(ordinal);
#else
  return {};
#endif
}

void DeviceScope::Leave([[maybe_unused]] const FormerDevice& former) {
#if TELEGRAD_WITH_CUDA
  cuda::LeaveDevice(former);
#endif
}

bool IsCaptured(Device device, [[maybe_unused]] Stream stream) {
  if (device.kind == DeviceKind::kCpu) return false;
#if TELEGRAD_WITH_CUDA
  return cuda::IsCaptured(device.ordinal, stream);
#else
  return false;
#endif
}

std::string BusIdOf(Device device) {
  if (device.kind == DeviceKind::kCpu) return "";
#if TELEGRAD_WITH_CUDA
  return cuda::BusIdOf(device.ordinal);
#else
  return "";
#endif
}

std::string TakeLaunchError(Device device) {
  if (device.kind == DeviceKind::kCpu) return "";
#if TELEGRAD_WITH_CUDA
  return cuda::TakeThreadError(device.ordinal);
#else
  return "";
#endif
}

void ToolRange::Begin([[maybe_unused]] const char* name) {
#if TELEGRAD_WITH_NVTX
  cuda::BeginRange(name);
#endif
}

void ToolRange::End() {
#if TELEGRAD_WITH_NVTX
  cuda::EndRange();
#endif
}

const GatherKernels& GatherKernelsOf([[maybe_unused]] DeviceKind kind) {
#if TELEGRAD_WITH_CUDA
  static constexpr GatherKernels kCudaGather = {cuda::Clear, cuda::Sample,
                                                cuda::GatherMany};
  if (kind == DeviceKind::kCuda) return kCudaGather;
#endif
  static constexpr GatherKernels kGather = {reference::Clear, reference::Sample,
                                            reference::GatherMany};
  return kGather;
}

const FrozenAdamKernels& FrozenAdamKernelsOf([[maybe_unused]] DeviceKind kind) {
#if TELEGRAD_WITH_CUDA
  static constexpr FrozenAdamKernels kCudaFrozen = {cuda::ToMean,
                                                    cuda::StepByMean};
  if (kind == DeviceKind::kCuda) return kCudaFrozen;
#endif
  static constexpr FrozenAdamKernels kFrozen = {reference::ToMean,
                                                reference::StepByMean};
  return kFrozen;
}

const NormalAdamKernels& NormalAdamKernelsOf([[maybe_unused]] DeviceKind kind) {
#if TELEGRAD_WITH_CUDA
  static constexpr NormalAdamKernels kCudaNormal = {cuda::ToNormal,
                                                    cuda::StepByNormal};
  if (kind == DeviceKind::kCuda) return kCudaNormal;
#endif
  static constexpr NormalAdamKernels kNormal = {reference::ToNormal,
                                                reference::StepByNormal};
  return kNormal;
}

std::vector<const KernelTable*> AllCpuKernels() {
  std::vector<const KernelTable*> all = {&ReferenceKernels()};
  for (const NamedTable& named : CpuTables()) all.push_back(&named.table);
  return all;
}

}  // namespace telegrad::kernels
