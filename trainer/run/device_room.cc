#include "trainer/run/device_room.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/device_access.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kvstore/states.h"
#include "trainer/networks/gpu_faults.h"

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
const float* Reached(const Network& network, const float* data, size_t n) {
  return Reached(network, const_cast<float*>(data), n);
}

const kernels::KernelTable& KernelsOf(Device device) {
  if (device.kind == DeviceKind::kCpu) return kernels::CpuKernels();
  const kernels::KernelTable* const table =
      kernels::CudaKernels(device.ordinal, nullptr);
  TELEGRAD_CHECK(table != nullptr, "the network's device has kernels");
  return *table;
}

void CopyOn(const Network& network, const float* from, size_t n, float* to) {
  const kernels::DeviceScope scope(network.device());
  KernelsOf(network.device())
      .copy(Reached(network, from, n), 4 * n, Reached(network, to, n),
            network.stream());
}

void AddOn(const Network& network, const float* x, size_t n, float* sum) {
  const kernels::DeviceScope scope(network.device());
  KernelsOf(network.device())
      .add_f32(Reached(network, x, n), n, Reached(network, sum, n),
               network.stream());
}

void SubtractOn(const Network& network, const float* from, size_t n, float* x) {
  const kernels::DeviceScope scope(network.device());
  KernelsOf(network.device())
      .scale_f32(-1.0f, n, Reached(network, x, n), network.stream());
  AddOn(network, from, n, x);
}

void StepOn(const Network& network, const OptimizerConfig& config,
            const RateMultipliers& own, const float* grad, size_t n,
            float* weight, OptimizerState& state) {
  const kernels::DeviceScope scope(network.device());
  state.Step(config, own, Reached(network, grad, n), n,
             Reached(network, weight, n), network.stream(),
             KernelsOf(network.device()));
}

absl::StatusOr<Buffer> MakeRoom(Device device, Stream stream, size_t bytes) {
  if (device == kEmulatedDevice) return MakeEmulatedBuffer(bytes);
  const kernels::DeviceScope scope(device);
  Buffer room = KernelsOf(device).make_buffer(bytes, device.ordinal, stream);
  if (room.size() == bytes) return room;
  return NoGpuMemory(
      device,
      absl::StrCat(bytes, " bytes wanted: ", kernels::TakeLaunchError(device)));
}

absl::StatusOr<OptimizerState> MakeState(const Network& network, size_t n,
                                         OptimizerKind kind) {
  OptimizerState state;
  for (size_t i = 0; i < NumStateArrays(kind); ++i) {
    ASSIGN_OR_RETURN(Buffer array, MakeRoom(network, 4 * n));
    state.Restore(0, i, std::move(array));
  }
  return state;
}

absl::Status LaunchStatus(Device device) {
  const std::string error = kernels::TakeLaunchError(device);
  return error.empty() ? absl::OkStatus() : GpuFault(device, error);
}

}  // namespace telegrad
