#include "trainer/device_room.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/device_access.h"
#include "kernels/device_scope.h"
#include "trainer/gpu_faults.h"

namespace telegrad {

TensorView ViewOf(const Network& network, float* data, size_t n) {
  TensorView view = FloatTensor({data, 4 * n, network.device()});
  view.stream = network.stream();
  return view;
}

float* Reached(const Network& network, float* data, size_t n) {
  return reinterpret_cast<float*>(
      Reach(Bytes(data, 4 * n, network.device())).data);
}

const kernels::KernelTable& KernelsOf(Device device) {
  if (device.kind == DeviceKind::kCpu) return kernels::CpuKernels();
  const kernels::KernelTable* const table =
      kernels::CudaKernels(device.ordinal, nullptr);
  TELEGRAD_CHECK(table != nullptr, "the network's device has kernels");
  return *table;
}

absl::StatusOr<Buffer> MakeRoom(const Network& network, size_t bytes) {
  const Device device = network.device();
  if (device == kEmulatedDevice) return MakeEmulatedBuffer(bytes);
  const kernels::DeviceScope scope(device);
  Buffer room =
      KernelsOf(device).make_buffer(bytes, device.ordinal, network.stream());
  if (room.size() == bytes) return room;
  return NoGpuMemory(
      device,
      absl::StrCat(bytes, " bytes wanted: ", kernels::TakeLaunchError(device)));
}

absl::Status LaunchStatus(Device device) {
  const std::string error = kernels::TakeLaunchError(device);
  return error.empty() ? absl::OkStatus() : GpuFault(device, error);
}

}  // namespace telegrad
