#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace telegrad::kernels::cuda {

// Makes a device the thread's current one; that before, or -1 where it was the
// same. A failure is seen at the next cudaGetLastError.
inline int EnterDevice(int ordinal) {
  int before = 0;
  if (cudaGetDevice(&before) == cudaSuccess && before == ordinal) return -1;
  cudaSetDevice(ordinal);
  return before;
}

// Leaves the thread's current device as it was.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) : before_(EnterDevice(ordinal)) {}
  ~CurrentDevice() {
    if (before_ >= 0) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const int before_;
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
