#include "kernels/cuda/current_device.h"

#include <atomic>
#include <mutex>

namespace telegrad::kernels::cuda {
namespace {

// Calls of libcuda, which the runtime has opened. Its contexts are pointers,
// and 0 is success.
struct Driver {
  int (*get_current)(void** context) = nullptr;
  int (*set_current)(void* context) = nullptr;
  int (*retain_primary)(void** context, int ordinal) = nullptr;
};

template <typename Call>
bool Find(const char* name, Call*& call) {
  constexpr unsigned kOldestDriver = 11000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &found, kOldestDriver,
                                       cudaEnableDefault,
                                       &result) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  call = reinterpret_cast<Call*>(found);
  return result == cudaDriverEntryPointSuccess && call != nullptr;
}

// Null where there is none.
const Driver* TheDriver() {
  static Driver driver;
  static const bool is_whole =
      Find("cuCtxGetCurrent", driver.get_current) &&
      Find("cuCtxSetCurrent", driver.set_current) &&
      Find("cuDevicePrimaryCtxRetain", driver.retain_primary);
  return is_whole ? &driver : nullptr;
}

constexpr int kMostDevices = 64;

// Kept until the process ends, as the runtime keeps them; null on a failure.
void* PrimaryContext(const Driver& driver, int ordinal) {
  static std::atomic<void*> contexts[kMostDevices];
  static std::mutex mutex;
  if (ordinal < 0 || ordinal >= kMostDevices) return nullptr;
  std::atomic<void*>& context = contexts[ordinal];
  if (context.load() != nullptr) return context.load();
  const std::lock_guard<std::mutex> lock(mutex);
  void* made = nullptr;
  if (context.load() == nullptr && driver.retain_primary(&made, ordinal) == 0) {
    context.store(made);
  }
  return context.load();
}

std::atomic<int> used_device{0};

// Whether the thread's calls may go beside captures already.
thread_local bool is_relaxed = false;

void Relax(FormerDevice& former) {
  if (is_relaxed) return;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) return;
  former.capture_mode = mode;
  former.has_mode = is_relaxed = true;
}

FormerDevice EnterContext(int ordinal) {
  const Driver* const driver = TheDriver();
  void* const wanted =
      driver != nullptr ? PrimaryContext(*driver, ordinal) : nullptr;
  FormerDevice former;
  if (wanted == nullptr || driver->get_current(&former.context) != 0) {
    cudaSetDevice(ordinal);  // says why
    return {};
  }
  if (former.context == wanted) return {};
  former.is_other = driver->set_current(wanted) == 0;
  return former;
}

}  // namespace

FormerDevice EnterDevice(int ordinal) {
  used_device.store(ordinal, std::memory_order_relaxed);
  FormerDevice former = EnterContext(ordinal);
  Relax(former);
  return former;
}

void LeaveDevice(const FormerDevice& former) {
  if (former.has_mode) {
    auto mode = static_cast<cudaStreamCaptureMode>(former.capture_mode);
    cudaThreadExchangeStreamCaptureMode(&mode);
    is_relaxed = false;
  }
  if (former.is_other) TheDriver()->set_current(former.context);
}

int UsedDevice() { return used_device.load(std::memory_order_relaxed); }

bool IsCaptured(int ordinal, Stream stream) {
  const CurrentDevice current(ordinal);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error =
      cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.handle), &status);
  if (error == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  if (error == cudaErrorStreamCaptureImplicit) cudaGetLastError();
  return error == cudaErrorStreamCaptureImplicit;
}

std::string BusIdOf(int ordinal) {
  char text[16] = {};
  if (cudaDeviceGetPCIBusId(text, sizeof(text), ordinal) == cudaSuccess) {
    return text;
  }
  cudaGetLastError();
  return "";
}

}  // namespace telegrad::kernels::cuda
