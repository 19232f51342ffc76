#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tests/simt/device_memory.h"

// The runtime's calls for the one device of tests/simt. All work is done when
// its call returns, so that there is nothing to wait for.

struct SimtStream {};
struct SimtEvent {
  std::chrono::steady_clock::time_point time;
};

namespace {

using telegrad::simt::DeviceAccess;
using telegrad::simt::IsDevice;

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Failed(cudaError_t error) {
  last_error = error;
  return error;
}

cudaError_t HostMemory(void** memory, size_t size) {
  return posix_memalign(memory, 256, size) == 0
             ? cudaSuccess
             : Failed(cudaErrorMemoryAllocation);
}

cudaError_t CheckDevice(int device) {
  return device == 0 ? cudaSuccess : Failed(cudaErrorInvalidDevice);
}

}  // namespace

void telegrad::simt::RefuseLaunch() { Failed(cudaErrorInvalidConfiguration); }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNotReady:
      return "device not ready";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return CheckDevice(device); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {"emulated by the CPU", 0, 0};
  return CheckDevice(device);
}

// One, so that loops over a grid's strides take several turns.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what,
                                   int device) {
  if (what != cudaDevAttrMultiProcessorCount) {
    return Failed(cudaErrorInvalidValue);
  }
  *value = 1;
  return CheckDevice(device);
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaMalloc(void** memory, size_t size) {
  *memory = size == 0 ? nullptr : telegrad::simt::AllocateDevice(size);
  return *memory != nullptr || size == 0 ? cudaSuccess
                                         : Failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocManaged(void** memory, size_t size) {
  return HostMemory(memory, size);
}

cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned) {
  return HostMemory(memory, size);
}

cudaError_t cudaFree(void* memory) {
  if (memory != nullptr && !telegrad::simt::FreeDevice(memory)) {
    std::free(memory);
  }
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size,
                       cudaMemcpyKind kind) {
  if (size == 0) return cudaSuccess;
  if ((kind == cudaMemcpyHostToDevice && IsDevice(from)) ||
      (kind == cudaMemcpyDeviceToHost && IsDevice(to))) {
    return Failed(cudaErrorInvalidValue);
  }
  const DeviceAccess access(to, from);
  std::memmove(to, from, size);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                            cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, size, kind);
}

cudaError_t cudaMemset(void* to, int byte, size_t size) {
  if (size == 0) return cudaSuccess;
  const DeviceAccess access(to, nullptr);
  std::memset(to, byte, size);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int byte, size_t size, cudaStream_t) {
  return cudaMemset(to, byte, size);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new SimtStream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new SimtEvent;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin,
                                 cudaEvent_t end) {
  *ms =
      std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}
