#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/cuda/image.h"

namespace telegrad::gpu_check {

// A program for developers: an error of CUDA ends it.
inline void Require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// A copy of `values` on the device, `skew` elements off its alignment.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values, size_t skew = 0)
      : size_(values.size()) {
    Require(cudaMalloc(&memory_, (size_ + skew + 1) * sizeof(T)), "cudaMalloc");
    first_ = memory_ + skew;
    Require(cudaMemcpy(first_, values.data(), size_ * sizeof(T),
                       cudaMemcpyHostToDevice),
            "copy to the device");
  }
  DeviceArray(DeviceArray&& other)
      : size_(other.size_), memory_(other.memory_), first_(other.first_) {
    other.memory_ = nullptr;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(memory_); }

  T* get() const { return first_; }
  std::vector<T> values() const {
    Require(kernels::cuda::LastKernelError(), "launch");
    Require(cudaDeviceSynchronize(), "kernel");
    std::vector<T> copy(size_);
    Require(cudaMemcpy(copy.data(), first_, size_ * sizeof(T),
                       cudaMemcpyDeviceToHost),
            "copy to the host");
    return copy;
  }

 private:
  size_t size_;
  T* memory_ = nullptr;
  T* first_ = nullptr;
};

// Prints a table of speeds; writes it as JSON to `path` where that is not null.
void MeasureAll(const char* device_name, const char* path);

}  // namespace telegrad::gpu_check
