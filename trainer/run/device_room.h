#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/device.h"
#include "base/tensor_view.h"
#include "kernels/dispatch.h"
#include "kvstore/kvstore.h"
#include "kvstore/optimizer.h"
#include "trainer/networks/network.h"

// What the trainer does with a network's tensors beside the framework, on the
// network's device and stream.
namespace telegrad {

// The network's memory `data` [n] f32, for a store.
TensorView ViewOf(const Network& network, float* data, size_t n);

// The memory as kernels reach it.
float* Reached(const Network& network, float* data, size_t n);
const float* Reached(const Network& network, const float* data, size_t n);

// The kernels of a network's device, which was seen to be there.
const kernels::KernelTable& KernelsOf(Device device);

// The kernels' arithmetic on arrays [n] f32 of the network's memory.
// to = from
void CopyOn(const Network& network, const float* from, size_t n, float* to);
// sum = sum + x
void AddOn(const Network& network, const float* x, size_t n, float* sum);
// x = from - x
void SubtractOn(const Network& network, const float* from, size_t n, float* x);
// A step of `weight` by `grad` and what `state` keeps.
void StepOn(const Network& network, const OptimizerConfig& config,
            const RateMultipliers& own, const float* grad, size_t n,
            float* weight, OptimizerState& state);

// Zero-filled, behind what `stream` was given. ResourceExhausted (exit code 32)
// names the device and the bytes that were wanted.
absl::StatusOr<Buffer> MakeRoom(Device device, Stream stream, size_t bytes);
inline absl::StatusOr<Buffer> MakeRoom(const Network& network, size_t bytes) {
  return MakeRoom(network.device(), network.stream(), bytes);
}
// With room for what an optimizer keeps of [n].
absl::StatusOr<OptimizerState> MakeState(const Network& network, size_t n,
                                         OptimizerKind kind);

// What went wrong with this thread's kernels on the device since the last time:
// exit code device_fault, with the device, the driver and CUDA's text.
absl::Status LaunchStatus(Device device);

}  // namespace telegrad
