#pragma once

#include <string>

#include "base/device.h"

namespace telegrad::kernels {

// What a thread had before a DeviceScope: a driver's context, or none.
struct FormerDevice {
  void* context = nullptr;
  bool is_other = false;  // than the scope's
};

// Makes a GPU the thread's current device while it lives; nothing for a CPU.
// Kernels of a GPU's table are queued within one.
class DeviceScope {
 public:
  explicit DeviceScope(Device device)
      : former_(device.kind == DeviceKind::kCuda ? Enter(device.ordinal)
                                                 : FormerDevice{}) {}
  ~DeviceScope() {
    if (former_.is_other) Leave(former_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  static FormerDevice Enter(int ordinal);
  static void Leave(const FormerDevice& former);

  const FormerDevice former_;
};

// What went wrong with this thread's launches and other calls for a GPU since
// the last time: "cuda:1: an illegal memory access was encountered". "" for
// nothing, and always for a CPU.
std::string TakeLaunchError(Device device);

}  // namespace telegrad::kernels
