#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace telegrad {

// A device for machines without a GPU: it computes as a CPU does, but its
// memory (MakeEmulatedBuffer) is closed to the host.
constexpr Device kEmulatedDevice = {DeviceKind::kCpu, -1};

// `memory` as kernels and copies reach it, which alone may ask: memory of the
// emulated device by other addresses, as host memory; other memory as it is.
Bytes Reach(Bytes memory);
ConstBytes Reach(ConstBytes memory);

// Opens the memory of the emulated device to all threads while it lives; for
// other devices it does nothing.
class DeviceAccess {
 public:
  explicit DeviceAccess(Device device) : is_open_(device == kEmulatedDevice) {
    if (is_open_) Open();
  }
  ~DeviceAccess() {
    if (is_open_) Close();
  }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  static void Open();
  static void Close();
  const bool is_open_;
};

// Pages without access, so that whoever reads or writes them by these addresses
// outside DeviceAccess dies of SIGSEGV at once. Zero-filled.
Buffer MakeEmulatedBuffer(size_t size);

}  // namespace telegrad
