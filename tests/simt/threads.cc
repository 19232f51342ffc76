#include "tests/simt/threads.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "tests/simt/observe_state.h"

namespace telegrad::simt {
namespace {

thread_local int chosen_device = 0;
// A device plus one; 0 where the thread has none.
thread_local uintptr_t current_context = 0;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

// One at a time.
struct Capture {
  std::mutex mutex;
  std::set<const StreamState*> streams;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool is_broken = false;
};
Capture& TheCapture() {
  static auto* const capture = new Capture;
  return *capture;
}

using Context = void*;
int GetContext(Context* context) {
  *context = reinterpret_cast<Context>(current_context);
  return 0;
}
int SetContext(Context context) {
  current_context = reinterpret_cast<uintptr_t>(context);
  return 0;
}
int RetainContext(Context* context, int device) {
  if (device < 0 || device >= kDevices) return cudaErrorInvalidDevice;
  NoteContext(device);
  *context = reinterpret_cast<Context>(static_cast<uintptr_t>(device) + 1);
  return 0;
}

}  // namespace

int CurrentDevice() {
  return current_context != 0 ? static_cast<int>(current_context) - 1
                              : chosen_device;
}

void ChooseDevice(int device) {
  chosen_device = device;
  current_context = 0;
  MakeContext();
}

void MakeContext() {
  current_context = static_cast<uintptr_t>(CurrentDevice()) + 1;
  NoteContext(CurrentDevice());
}

bool IsSafe() {
  if (capture_mode == cudaStreamCaptureModeRelaxed) return true;
  Capture& capture = TheCapture();
  const std::lock_guard<std::mutex> lock(capture.mutex);
  const bool is_own = capture.thread == std::this_thread::get_id();
  const bool is_safe =
      capture.streams.empty() || capture.mode == cudaStreamCaptureModeRelaxed ||
      (!is_own && (capture.mode == cudaStreamCaptureModeThreadLocal ||
                   capture_mode == cudaStreamCaptureModeThreadLocal));
  capture.is_broken |= !is_safe;
  return is_safe;
}

bool IsCapturing(const StreamState* stream) {
  Capture& capture = TheCapture();
  const std::lock_guard<std::mutex> lock(capture.mutex);
  return capture.streams.count(stream) != 0;
}

void JoinCapture(const StreamState* stream) {
  Capture& capture = TheCapture();
  const std::lock_guard<std::mutex> lock(capture.mutex);
  capture.streams.insert(stream);
}

}  // namespace telegrad::simt

using namespace telegrad::simt;  // NOLINT: the runtime's names are global

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** call, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  if (std::strcmp(name, "cuCtxGetCurrent") == 0) {
    *call = reinterpret_cast<void*>(GetContext);
  } else if (std::strcmp(name, "cuCtxSetCurrent") == 0) {
    *call = reinterpret_cast<void*>(SetContext);
  } else if (std::strcmp(name, "cuDevicePrimaryCtxRetain") == 0) {
    *call = reinterpret_cast<void*>(RetainContext);
  } else {
    *result = cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode) {
  Capture& capture = TheCapture();
  const std::lock_guard<std::mutex> lock(capture.mutex);
  if (stream == nullptr || !capture.streams.empty()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  capture.streams = {stream};
  capture.mode = mode;
  capture.thread = std::this_thread::get_id();
  capture.is_broken = false;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  Capture& capture = TheCapture();
  const std::lock_guard<std::mutex> lock(capture.mutex);
  capture.streams.clear();
  *graph = nullptr;
  return capture.is_broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  cudaStreamCaptureStatus* status) {
  *status = IsCapturing(stream) ? cudaStreamCaptureStatusActive
                                : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
