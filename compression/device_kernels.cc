#include "compression/device_kernels.h"

#include "absl/strings/str_cat.h"

namespace telegrad {

absl::StatusOr<const kernels::KernelTable*> KernelsFor(size_t num_elems,
                                                       Device device) {
  if (num_elems == 0) {
    return absl::InvalidArgumentError("a tensor without elements");
  }
  if (device.kind == DeviceKind::kCpu) return &kernels::CpuKernels();
  std::string why_not;
  const kernels::KernelTable* table = kernels::CudaKernels(&why_not);
  if (table != nullptr) return table;
  return absl::UnimplementedError(
      absl::StrCat("no GPU kernels on this machine: ", why_not));
}

}  // namespace telegrad
