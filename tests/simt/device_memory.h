#pragma once

#include <cstddef>
#include <mutex>

namespace telegrad::simt {

// While one exists, memory of a device can be read and written: a kernel or a
// copy runs. One at a time.
class DeviceAccess {
 public:
  // For a kernel: that of its device, and no other's.
  explicit DeviceAccess(int device) : DeviceAccess(device, nullptr, nullptr) {}
  // Only what these point into, where that is a device's.
  DeviceAccess(const void* first, const void* second)
      : DeviceAccess(kNone, first, second) {}
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
  ~DeviceAccess();

 private:
  static constexpr int kNone = -1;
  DeviceAccess(int device, const void* first, const void* second);
  void Protect(int protection);

  const std::lock_guard<std::mutex> lock_;
  const int device_;
  const void* const pointers_[2];
};

// Null where there is none left. Full of kPoison.
void* AllocateDevice(int device, size_t size);
// Whether it was one.
bool FreeDevice(void* memory);
bool IsDevice(const void* pointer);
// -1: it is not a device's.
int DeviceOf(const void* pointer);

constexpr int kPoison = 0xA5;

// Host memory that devices reach by themselves. False: some of it is known.
bool AddHost(const void* memory, size_t size);
// Whether it was added.
bool RemoveHost(const void* memory);
bool IsReachableHost(const void* pointer);

}  // namespace telegrad::simt
