#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/device_scope.h"

namespace telegrad::kernels::cuda {

// Makes a device the thread's current one; LeaveDevice undoes it. A thread that
// had none has none again: cudaSetDevice would give it GPU 0, and the process
// half a gigabyte of that. A failure is seen at the next cudaGetLastError.
FormerDevice EnterDevice(int ordinal);
void LeaveDevice(const FormerDevice& former);

// The device that a thread entered last, for calls that mean none: they use one
// that the process uses already.
int UsedDevice();

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
