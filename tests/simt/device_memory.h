#pragma once

#include <cstddef>
#include <mutex>

namespace telegrad::simt {

// While one exists, memory of the device can be read and written: a kernel or a
// copy runs. One at a time.
class DeviceAccess {
 public:
  DeviceAccess() : DeviceAccess(true, nullptr, nullptr) {}
  // Only what these point into, where that is the device's.
  DeviceAccess(const void* first, const void* second)
      : DeviceAccess(false, first, second) {}
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
  ~DeviceAccess();

 private:
  DeviceAccess(bool takes_all, const void* first, const void* second);
  void Protect(int protection);

  const std::lock_guard<std::mutex> lock_;
  const bool takes_all_;
  const void* const pointers_[2];
};

// Null where there is none left.
void* AllocateDevice(size_t size);
// Whether it was one.
bool FreeDevice(void* memory);
bool IsDevice(const void* pointer);

// A launch of an impossible shape: cudaGetLastError says so.
void RefuseLaunch();

}  // namespace telegrad::simt
