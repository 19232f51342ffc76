#include "tests/kernels/cuda_memory.h"

#include <cuda_runtime_api.h>

namespace telegrad::kernels::testing {

void* AllocateManaged(size_t size) {
  void* memory = nullptr;
  return cudaMallocManaged(&memory, size) == cudaSuccess ? memory : nullptr;
}

void FreeManaged(void* memory) { cudaFree(memory); }

const char* WaitForGpu() {
  const cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace telegrad::kernels::testing
