#include "tests/kernels/cuda_memory.h"

#include <cuda_runtime_api.h>

namespace telegrad::kernels::testing {

void* AllocateManaged(size_t size) {
  void* memory = nullptr;
  return cudaMallocManaged(&memory, size) == cudaSuccess ? memory : nullptr;
}

void FreeManaged(void* memory) { cudaFree(memory); }

void* AllocateOnGpu(size_t size) {
  void* memory = nullptr;
  return cudaMalloc(&memory, size) == cudaSuccess ? memory : nullptr;
}

void FreeOnGpu(void* memory) { cudaFree(memory); }

void CopyFromGpu(void* to, const void* from, size_t size) {
  cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost);
}

void CopyToGpu(void* to, const void* from, size_t size) {
  cudaMemcpy(to, from, size, cudaMemcpyHostToDevice);
}

size_t GpuThreads() {
  int device = 0;
  int multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                         device);
  constexpr size_t kPerMultiprocessor = 16 * 256;  // kernels/cuda/launch.h
  return static_cast<size_t>(multiprocessors) * kPerMultiprocessor;
}

const char* WaitForGpu() {
  const cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace telegrad::kernels::testing
