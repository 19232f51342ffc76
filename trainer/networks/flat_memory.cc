#include "trainer/networks/flat_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/device_access.h"

namespace telegrad {

torch::Device PlaceOf(Device device) {
  if (device.kind == DeviceKind::kCpu) return {torch::kCPU};
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(device.ordinal)};
}

void FlatMemory::Place(Buffer filled, Device device) {
  const auto n = static_cast<int64_t>(filled.size() / sizeof(float));
  if (device.kind == DeviceKind::kCuda) {
    tensor_ = torch::from_blob(filled.data(), {n}).to(PlaceOf(device));
    first_ = tensor_.data_ptr<float>();
    return;
  }
  buffer_ = std::move(filled);
  if (device != Device{}) {
    Buffer closed = MakeEmulatedBuffer(buffer_.size());
    std::memcpy(Reach(closed.view()).data, buffer_.data(), buffer_.size());
    buffer_ = std::move(closed);
  }
  first_ = buffer_.as<float>();
  tensor_ = torch::from_blob(Reach(buffer_.view()).data, {n});
}

// Squares are exact in float64. They are added in one order: element i to lane
// i mod `lanes`, then the upper half of the lanes to the lower one.
void FlatMemory::Clip(double most) {
  constexpr int64_t kMostLanes = int64_t{1} << 20;
  const int64_t n = tensor_.numel();
  int64_t lanes = 1;
  while (lanes < std::min(n / 8, kMostLanes)) lanes *= 2;
  torch::Tensor sums =
      torch::zeros({lanes}, tensor_.options().dtype(torch::kFloat64));
  for (int64_t at = 0; at < n; at += lanes) {
    const int64_t count = std::min(lanes, n - at);
    const torch::Tensor part = tensor_.narrow(0, at, count).to(torch::kFloat64);
    sums.narrow(0, 0, count).addcmul_(part, part);
  }
  while ((lanes /= 2) > 0) {
    sums = sums.narrow(0, 0, lanes) + sums.narrow(0, lanes, lanes);
  }
  const torch::Tensor norm = sums.sqrt();
  tensor_.mul_(torch::where(sums.isfinite() & (sums > most * most),
                            torch::full_like(norm, most).div(norm),
                            torch::ones_like(norm))
                   .to(torch::kFloat32));
}

}  // namespace telegrad
