#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simt/device_memory.h"
#include "tests/simt/engine.h"
#include "tests/simt/observe_state.h"
#include "tests/simt/simt.h"
#include "tests/simt/threads.h"
#include "tests/simt/wait_sites.h"

// The runtime's calls for the devices of tests/simt, as CUDA's manual says: a
// kernel or an event on another device's stream is an error, a copy is not.

struct SimtEvent {
  std::shared_ptr<telegrad::simt::EventState> state;
};

namespace {

using namespace telegrad::simt;  // NOLINT: the runtime's names are global

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Failed(cudaError_t error) {
  last_error = error;
  return error;
}

// What a call that does what it is asked for returns.
cudaError_t NoError() {
  const cudaError_t error = LastingError();
  return error == cudaSuccess ? cudaSuccess : Failed(error);
}

// The same of a call that needs a context.
cudaError_t Done() {
  MakeContext();
  return NoError();
}

cudaError_t CheckDevice(int device) {
  return device >= 0 && device < kDevices ? NoError()
                                          : Failed(cudaErrorInvalidDevice);
}

StreamState* StateOf(cudaStream_t stream) {
  MakeContext();
  return stream != nullptr ? stream
                           : Engine::Get().DefaultStream(CurrentDevice());
}

cudaError_t HostMemory(void** memory, size_t size) {
  if (posix_memalign(memory, 256, size) != 0) {
    return Failed(cudaErrorMemoryAllocation);
  }
  CountAllocation(false);
  if (size != 0) AddHost(*memory, size);
  return Done();
}

void Move(void* to, const void* from, size_t size) {
  const DeviceAccess access(to, from);
  std::memmove(to, from, size);
}

cudaError_t CheckSafe() {
  return IsSafe() ? cudaSuccess : Failed(cudaErrorStreamCaptureUnsupported);
}

bool IsPageable(const void* pointer) {
  return !IsDevice(pointer) && !IsReachableHost(pointer);
}

}  // namespace

void telegrad::simt::Launch(const Shape& shape, cudaStream_t stream,
                            std::function<void()> kernel) {
  const cudaError_t error = BeginLaunch();
  if (error != cudaSuccess) {
    Failed(error);
    return;
  }
  if (shape.blocks == 0 || shape.threads == 0 || shape.threads > kMostThreads ||
      shape.dynamic_shared_bytes != 0) {
    Failed(cudaErrorInvalidConfiguration);
    return;
  }
  StreamState* const state = StateOf(stream);
  if (state->device != CurrentDevice()) {
    Failed(cudaErrorInvalidResourceHandle);
    return;
  }
  Engine::Get().Queue(
      state,
      [shape, device = state->device, kernel = std::move(kernel)] {
        Run(shape, device, kernel);
      },
      /*is_kernel=*/true);
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return error == cudaSuccess ? LastingError() : error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

// As no machine has it: device 0 is "fffe:00:00.0".
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  const cudaError_t status = CheckDevice(device);
  if (status == cudaSuccess) {
    std::snprintf(text, static_cast<size_t>(size), "FFFE:%02X:00.0", device);
  }
  return status;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return NoError();
}

cudaError_t cudaGetDevice(int* device) {
  *device = CurrentDevice();
  return NoError();
}

cudaError_t cudaSetDevice(int device) {
  // Also where another fault lasts, so that a thread can go back.
  if (device < 0 || device >= kDevices) return CheckDevice(device);
  ChooseDevice(device);
  return NoError();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {"emulated by the CPU", 0, 0};
  return CheckDevice(device);
}

// One multiprocessor, so that loops over a grid's strides take several turns;
// what network cards write has no order but by a flush.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what,
                                   int device) {
  switch (what) {
    case cudaDevAttrMultiProcessorCount:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrGPUDirectRDMAFlushWritesOptions:
      *value = 1;
      return CheckDevice(device);
    case cudaDevAttrGPUDirectRDMAWritesOrdering:
      *value = 0;
      return CheckDevice(device);
  }
  return Failed(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(
    cudaFlushGPUDirectRDMAWritesTarget, cudaFlushGPUDirectRDMAWritesScope) {
  CountFlush();
  return Done();
}

cudaError_t cudaDeviceSynchronize() {
  if (CheckSafe() != cudaSuccess) return CheckSafe();
  CountWait();
  Engine::Get().FinishDevice(CurrentDevice());
  return Done();
}

cudaError_t cudaMalloc(void** memory, size_t size) {
  if (CheckSafe() != cudaSuccess) return CheckSafe();
  CountAllocation(false);
  *memory = size == 0 ? nullptr : AllocateDevice(CurrentDevice(), size);
  return *memory != nullptr || size == 0 ? Done()
                                         : Failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocManaged(void** memory, size_t size) {
  return HostMemory(memory, size);
}

cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned) {
  return HostMemory(memory, size);
}

cudaError_t cudaHostRegister(void* memory, size_t size, unsigned) {
  if (CheckSafe() != cudaSuccess) return CheckSafe();
  CountAllocation(false);
  if (size == 0) return Failed(cudaErrorInvalidValue);
  if (IsPinnedToFail()) return Failed(cudaErrorMemoryAllocation);
  return AddHost(memory, size) ? Done()
                               : Failed(cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* memory) {
  if (CheckSafe() != cudaSuccess) return CheckSafe();
  CountWait();
  for (int d = 0; d < kDevices; ++d) Engine::Get().FinishDevice(d);
  return RemoveHost(memory) ? Done() : Failed(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return Done();
  CountWait();
  for (int d = 0; d < kDevices; ++d) Engine::Get().FinishDevice(d);
  if (!FreeDevice(memory)) return cudaFreeHost(memory);
  return Done();
}

cudaError_t cudaFreeHost(void* memory) {
  CountWait();
  for (int d = 0; d < kDevices; ++d) Engine::Get().FinishDevice(d);
  RemoveHost(memory);
  std::free(memory);
  return Done();
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return Done();
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = nullptr;
  return CheckDevice(device);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return NoError();
}

cudaError_t cudaMallocAsync(void** memory, size_t size, cudaStream_t stream) {
  CountAllocation(true);
  *memory = AllocateDevice(StateOf(stream)->device, size);
  return *memory != nullptr ? Done() : Failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  Engine::Get().Queue(StateOf(stream), [memory] {
    if (!FreeDevice(memory)) Fail("cudaFreeAsync of what is no memory");
  });
  return Done();
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size,
                       cudaMemcpyKind kind) {
  CountWait();
  const cudaError_t error = cudaMemcpyAsync(to, from, size, kind, nullptr);
  if (error != cudaSuccess) return error;
  Engine::Get().Finish(StateOf(nullptr));
  return Done();
}

// Host memory that a device does not reach is read before this returns, and
// what is to be written to it waits for the stream.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  if (size == 0) return Done();
  if ((kind == cudaMemcpyHostToDevice && IsDevice(from)) ||
      (kind == cudaMemcpyDeviceToHost && IsDevice(to))) {
    return Failed(cudaErrorInvalidValue);
  }
  CountCopied(IsDevice(to) && !IsDevice(from) ? size : 0,
              IsDevice(from) && !IsDevice(to) ? size : 0);
  StreamState* const state = StateOf(stream);
  Engine& engine = Engine::Get();
  if (IsPageable(from)) {
    CountWait();
    const auto* const bytes = static_cast<const char*>(from);
    engine.Queue(state, [to, copy = std::vector<char>(bytes, bytes + size)] {
      Move(to, copy.data(), copy.size());
    });
  } else {
    // The host that reads too early shall see it.
    if (IsReachableHost(to)) std::memset(to, kPoison, size);
    engine.Queue(state, [=] { Move(to, from, size); });
  }
  if (IsPageable(to)) {
    CountWait();
    engine.Finish(state);
  }
  return Done();
}

cudaError_t cudaMemset(void* to, int byte, size_t size) {
  return cudaMemsetAsync(to, byte, size, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int byte, size_t size,
                            cudaStream_t stream) {
  if (size == 0) return Done();
  Engine::Get().Queue(StateOf(stream), [=] {
    const DeviceAccess access(to, nullptr);
    std::memset(to, byte, size);
  });
  return Done();
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Done();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = Engine::Get().MakeStream(CurrentDevice());
  return Done();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Engine::Get().EndStream(stream);
  return Done();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (CheckSafe() != cudaSuccess) return CheckSafe();
  CountWait();
  Engine::Get().Finish(StateOf(stream));
  return Done();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  if (IsLeftOut(__builtin_return_address(0))) return Done();
  if (event->state->is_captured) {
    JoinCapture(StateOf(stream));
  } else {
    Engine::Get().WaitFor(StateOf(stream), event->state);
  }
  return Done();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call,
                               void* argument) {
  Engine::Get().QueueHostCall(StateOf(stream), [=] { call(argument); });
  return Done();
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new SimtEvent{std::make_shared<EventState>(CurrentDevice())};
  return Done();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return Done();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  StreamState* const state = StateOf(stream);
  if (state->device != event->state->device) {
    return Failed(cudaErrorInvalidResourceHandle);
  }
  event->state->is_captured = IsCapturing(state);
  if (event->state->is_captured) return Done();
  Engine::Get().Record(state, event->state);
  return Done();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (CheckSafe() != cudaSuccess) return CheckSafe();
  if (event->state->is_captured) return Failed(cudaErrorCapturedEvent);
  return Engine::Get().Poll(*event->state) ? Done() : Failed(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CountWait();
  Engine::Get().Finish(*event->state);
  return Done();
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin,
                                 cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->state->passed -
                                                 begin->state->passed)
            .count();
  return Done();
}
