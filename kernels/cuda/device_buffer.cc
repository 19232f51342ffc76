#include "kernels/cuda/device_buffer.h"

#include <cuda_runtime_api.h>

namespace telegrad::kernels::cuda {
namespace {

// Waits for what the device still does with it.
void FreeMemory(std::byte* memory) { cudaFree(memory); }

}  // namespace

Buffer MakeDeviceBuffer(size_t size) {
  if (size == 0) return Buffer();
  Device device{DeviceKind::kCuda, 0};
  void* memory = nullptr;
  if (cudaGetDevice(&device.ordinal) != cudaSuccess ||
      cudaMalloc(&memory, size) != cudaSuccess) {
    cudaGetLastError();  // so that nobody else takes it for theirs
    return Buffer();
  }
  Buffer buffer(static_cast<std::byte*>(memory), size, device, FreeMemory);
  // Streams that wait for no other must find zeros.
  if (cudaMemset(memory, 0, size) != cudaSuccess ||
      cudaStreamSynchronize(nullptr) != cudaSuccess) {
    cudaGetLastError();
    return Buffer();
  }
  return buffer;
}

}  // namespace telegrad::kernels::cuda
