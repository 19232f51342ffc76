#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/device_scope.h"

namespace telegrad::kernels::cuda {

// Makes a device the thread's current one, and lets the thread's calls go
// beside captures of others (CUDA graphs): without that an event that is asked
// for, or memory that is pinned, would end them. LeaveDevice undoes both. A
// thread that had none has none again: cudaSetDevice would give it GPU 0, and
// the process half a gigabyte of that. A failure is seen at the next
// cudaGetLastError.
FormerDevice EnterDevice(int ordinal);
void LeaveDevice(const FormerDevice& former);

// The device that a thread entered last, for calls that mean none: they use one
// that the process uses already.
int UsedDevice();

// Whether the stream is being captured, or the legacy stream may not be used
// since another one is.
bool IsCaptured(int ordinal, Stream stream);

// PCI address of a device, "0000:3B:00.0"; "" where there is no such one. Makes
// no context.
std::string BusIdOf(int ordinal);

// Leaves the thread's current device as it was.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) : former_(EnterDevice(ordinal)) {}
  ~CurrentDevice() { LeaveDevice(former_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const FormerDevice former_;
};

// "cuda:1: invalid argument"
inline std::string DescribeError(int ordinal, cudaError_t error) {
  return "cuda:" + std::to_string(ordinal) + ": " + cudaGetErrorString(error);
}

// Takes the thread's error, which then has none.
inline std::string TakeThreadError(int ordinal) {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? "" : DescribeError(ordinal, error);
}

}  // namespace telegrad::kernels::cuda
