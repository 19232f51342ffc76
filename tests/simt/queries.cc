#include <cuda_runtime_api.h>

#include "tests/simt/device_memory.h"
#include "tests/simt/engine.h"
#include "tests/simt/observe_state.h"
#include "tests/simt/threads.h"

// What groups of GPUs ask the runtime.

using namespace telegrad::simt;  // NOLINT: the runtime's names are global

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* pointer) {
  const int device = DeviceOf(pointer);
  const cudaMemoryType of_host = IsReachableHost(pointer)
                                     ? cudaMemoryTypeHost
                                     : cudaMemoryTypeUnregistered;
  *attributes = {device >= 0 ? cudaMemoryTypeDevice : of_host, device};
  return LastingError();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!IsSafe()) return cudaErrorStreamCaptureUnsupported;
  if (!Engine::Get().Poll(stream)) return cudaErrorNotReady;
  return LastingError();
}
