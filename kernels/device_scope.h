#pragma once

#include <string>

#include "base/device.h"
#include "base/stream.h"

namespace telegrad::kernels {

// What a thread had before a DeviceScope: a driver's context, or none, and
// CUDA's mode of captures.
struct FormerDevice {
  void* context = nullptr;
  bool is_other = false;  // than the scope's
  int capture_mode = 0;
  bool has_mode = false;  // whether that mode is to come back
};

// Makes a GPU the thread's current device while it lives; nothing for a CPU.
// Kernels of a GPU's table are queued within one. What is called there disturbs
// no capture (CUDA graphs) of another thread or library.
class DeviceScope {
 public:
  explicit DeviceScope(Device device)
      : former_(device.kind == DeviceKind::kCuda ? Enter(device.ordinal)
                                                 : FormerDevice{}) {}
  ~DeviceScope() {
    if (former_.is_other || former_.has_mode) Leave(former_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  static FormerDevice Enter(int ordinal);
  static void Leave(const FormerDevice& former);

  const FormerDevice former_;
};

// Whether `stream` of that GPU records a graph instead of working; false for a
// CPU.
bool IsCaptured(Device device, Stream stream);

// PCI address of that GPU: "0000:3B:00.0"; "" for a CPU, and where there is no
// such GPU.
std::string BusIdOf(Device device);

// What went wrong with this thread's launches and other calls for a GPU since
// the last time: "cuda:1: an illegal memory access was encountered". "" for
// nothing, and always for a CPU.
std::string TakeLaunchError(Device device);

}  // namespace telegrad::kernels
