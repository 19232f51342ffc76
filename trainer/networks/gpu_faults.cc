#include "trainer/networks/gpu_faults.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "kernels/dispatch.h"

namespace telegrad {
namespace {

std::string Told(Device device, absl::string_view text) {
  return absl::StrCat(DescribeGpu(device), ": ", text);
}

}  // namespace

std::string DescribeGpu(Device device) {
  if (device.kind == DeviceKind::kCpu) return "the emulated device";
  const kernels::KernelTable* const table =
      kernels::CudaKernels(device.ordinal, nullptr);
  std::string driver;
  std::ifstream file("/sys/module/nvidia/version");
  std::getline(file, driver);
  return absl::StrCat(
      "cuda:", device.ordinal, " (",
      absl::StripPrefix(table == nullptr ? "GPU" : table->name, "cuda/"),
      ", driver ", driver.empty() ? "unknown" : driver, ")");
}

absl::Status GpuFault(Device device, absl::string_view text) {
  return WithExitCode(ExitCode::kDeviceFault,
                      absl::InternalError(Told(device, text)));
}

absl::Status NoGpuMemory(Device device, absl::string_view text) {
  return WithExitCode(ExitCode::kResourceLimit,
                      absl::ResourceExhaustedError(Told(device, text)));
}

}  // namespace telegrad
