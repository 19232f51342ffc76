#pragma once

#include <string>

#include "base/device.h"

namespace telegrad::kernels {

// Makes a GPU the thread's current device while it lives; nothing for a CPU.
// Kernels of a GPU's table are queued within one.
class DeviceScope {
 public:
  explicit DeviceScope(Device device)
      : before_(device.kind == DeviceKind::kCuda ? Enter(device.ordinal)
                                                 : kNothingToDo) {}
  ~DeviceScope() {
    if (before_ != kNothingToDo) Leave(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  static constexpr int kNothingToDo = -1;
  // The device before; kNothingToDo where it was the same.
  static int Enter(int ordinal);
  static void Leave(int before);

  const int before_;
};

// What went wrong with this thread's launches and other calls for a GPU since
// the last time: "cuda:1: an illegal memory access was encountered". "" for
// nothing, and always for a CPU.
std::string TakeLaunchError(Device device);

}  // namespace telegrad::kernels
