#pragma once

#include <cstddef>
#include <cstdint>

// What our sources use of CUDA's runtime, by its own names, for two devices
// that tests/simt makes of the CPU. Work runs as late as waits allow:
// observe.h.

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
};
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
};
enum { cudaEnableDefault = 0 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3,
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryPoolsSupported = 115,
  cudaDevAttrGPUDirectRDMAFlushWritesOptions = 117,
  cudaDevAttrGPUDirectRDMAWritesOrdering = 118,
};
enum { cudaFlushGPUDirectRDMAWritesOptionHost = 1 };
enum { cudaGPUDirectRDMAWritesOrderingOwner = 100 };
enum cudaFlushGPUDirectRDMAWritesTarget {
  cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
};
enum cudaFlushGPUDirectRDMAWritesScope {
  cudaFlushGPUDirectRDMAWritesToOwner = 100,
};
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
inline constexpr unsigned cudaHostAllocPortable = 1;
inline constexpr unsigned cudaHostRegisterPortable = 1;
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

struct cudaDeviceProp {
  char name[256];
  int major;
  int minor;
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
using cudaStream_t = struct SimtStream*;
using cudaEvent_t = struct SimtEvent*;
using cudaGraph_t = struct SimtGraph*;
using cudaMemPool_t = struct SimtPool*;
using cudaHostFn_t = void (*)(void* argument);

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
// Of the driver's calls those for contexts.
cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** call, unsigned version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* result);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(
    cudaFlushGPUDirectRDMAWritesTarget target,
    cudaFlushGPUDirectRDMAWritesScope scope);

// The host cannot touch what this returns; nobody what is past its end.
cudaError_t cudaMalloc(void** memory, size_t size);
cudaError_t cudaMallocManaged(void** memory, size_t size);
cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned flags);
cudaError_t cudaHostRegister(void* memory, size_t size, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaFree(void* memory);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* pointer);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr what,
                                    void* value);
cudaError_t cudaMallocAsync(void** memory, size_t size, cudaStream_t stream);
// Done when the stream gets there: who touches it later dies.
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
template <typename T>
cudaError_t cudaMalloc(T** memory, size_t size) {
  void* made = nullptr;
  const cudaError_t error = cudaMalloc(&made, size);
  *memory = static_cast<T*>(made);
  return error;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t size,
                       cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void* to, int byte, size_t size);
cudaError_t cudaMemsetAsync(void* to, int byte, size_t size,
                            cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call,
                               void* argument);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
// One at a time. Nothing of it is kept: graphs are null.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  cudaStreamCaptureStatus* status);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);
