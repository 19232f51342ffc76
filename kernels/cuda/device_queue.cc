#include "kernels/cuda/device_queue.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/current_device.h"
#include "kernels/cuda/device_buffer.h"

namespace telegrad::kernels::cuda {
namespace {

cudaStream_t StreamOf(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}
cudaEvent_t EventOf(Event event) {
  return static_cast<cudaEvent_t>(event.handle);
}

// Whether what network cards write needs a flush: a device that gives them no
// order has a call that does.
bool NeedsFlush(int ordinal) {
  int order = cudaGPUDirectRDMAWritesOrderingOwner;
  int ways = 0;
  const bool is_known =
      cudaDeviceGetAttribute(&order, cudaDevAttrGPUDirectRDMAWritesOrdering,
                             ordinal) == cudaSuccess &&
      cudaDeviceGetAttribute(&ways, cudaDevAttrGPUDirectRDMAFlushWritesOptions,
                             ordinal) == cudaSuccess;
  if (!is_known) cudaGetLastError();
  return is_known && order < cudaGPUDirectRDMAWritesOrderingOwner &&
         (ways & cudaFlushGPUDirectRDMAWritesOptionHost) != 0;
}

class Queue : public DeviceQueue {
 public:
  explicit Queue(int ordinal)
      : ordinal_(ordinal), flushes_(NeedsFlush(ordinal)) {}

  ~Queue() override {
    const CurrentDevice current(ordinal_);
    for (cudaStream_t stream : streams_) {
      cudaStreamSynchronize(stream);
      ForgetStream(ordinal_, {stream});
      cudaStreamDestroy(stream);
    }
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  Device device() const override { return {DeviceKind::kCuda, ordinal_}; }

  std::string bus_id() const override { return BusIdOf(ordinal_); }
  void PlacePinned(int numa_node) override { numa_node_ = numa_node; }

  Stream MakeStream(int priority) override {
    const CurrentDevice current(ordinal_);
    int least = 0;
    int greatest = 0;  // the more urgent, the smaller
    cudaStream_t stream = nullptr;
    if (!Check(cudaDeviceGetStreamPriorityRange(&least, &greatest)) ||
        !Check(cudaStreamCreateWithPriority(
            &stream, cudaStreamNonBlocking,
            std::clamp(least - priority, greatest, least)))) {
      return {};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.push_back(stream);
    return {stream};
  }

  Event MakeEvent() override {
    const CurrentDevice current(ordinal_);
    cudaEvent_t event = nullptr;
    if (!Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) {
      // The error may be that of an earlier launch.
      if (event != nullptr) cudaEventDestroy(event);
      return {};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
    return {event};
  }

  bool Record(Event event, Stream stream) override {
    if (event.handle == nullptr) return false;  // MakeEvent has said why
    const CurrentDevice current(ordinal_);
    return Check(cudaEventRecord(EventOf(event), StreamOf(stream)));
  }

  bool WaitOn(Stream stream, Event event) override {
    if (event.handle == nullptr) return true;
    const CurrentDevice current(ordinal_);
    return Check(cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0));
  }

  State Poll(Event event) override {
    if (event.handle == nullptr) return State::kPassed;
    const CurrentDevice current(ordinal_);
    KeepThreadError();
    const cudaError_t error = cudaEventQuery(EventOf(event));
    if (error != cudaErrorNotReady) {
      return Check(error) ? State::kPassed : State::kFailed;
    }
    cudaGetLastError();  // it counts as one
    return State::kRunning;
  }

  bool Notify(Stream stream, void (*call)(void*), void* argument) override {
    const CurrentDevice current(ordinal_);
    return Check(cudaLaunchHostFunc(StreamOf(stream), call, argument));
  }

  bool Copy(Bytes to, ConstBytes from, Stream stream) override {
    if (from.size == 0) return true;
    const CurrentDevice current(ordinal_);
    return Check(cudaMemcpyAsync(to.data, from.data, from.size,
                                 cudaMemcpyDefault, StreamOf(stream)));
  }

  Buffer MakePinned(size_t size) override {
    const CurrentDevice current(ordinal_);
    Buffer buffer = MakePinnedBuffer(size, numa_node_);
    if (buffer.size() != size) cudaGetLastError();
    return buffer;
  }

  Buffer MakeMemory(size_t size, Stream stream) override {
    Buffer buffer = MakeDeviceBuffer(size, ordinal_, stream);
    if (buffer.size() != size) KeepOutOfMemory(size);
    return buffer;
  }

  Buffer MakeCardMemory(size_t size) override {
    Buffer buffer = MakeCardBuffer(size, ordinal_);
    if (buffer.size() != size) KeepOutOfMemory(size);
    return buffer;
  }

  // Where the device orders them by itself there is nothing to do.
  bool SeeCardWrites() override {
    if (!flushes_) return true;
    const CurrentDevice current(ordinal_);
    return Check(cudaDeviceFlushGPUDirectRDMAWrites(
        cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
        cudaFlushGPUDirectRDMAWritesToOwner));
  }

  std::string TakeError() override {
    KeepThreadError();
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(error_, "");
  }

 private:
  bool Check(cudaError_t error) {
    if (error == cudaSuccess) return true;
    cudaGetLastError();  // so that nobody else takes it for theirs
    Keep(DescribeError(ordinal_, error));
    return false;
  }

  // Launches return no error; the thread has it.
  void KeepThreadError() { Keep(TakeThreadError(ordinal_)); }

  void KeepOutOfMemory(size_t wanted) {
    const CurrentDevice current(ordinal_);
    size_t free = 0;
    size_t total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
    Keep(DescribeError(ordinal_, cudaErrorMemoryAllocation) + " (" +
         std::to_string(wanted) + " bytes wanted, " + std::to_string(free) +
         " free)");
  }

  void Keep(std::string error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_.empty()) error_ = std::move(error);
  }

  const int ordinal_;
  const bool flushes_;
  std::atomic<int> numa_node_{-1};
  std::mutex mutex_;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::string error_;
};

}  // namespace

std::unique_ptr<DeviceQueue> MakeQueue(int ordinal) {
  return std::make_unique<Queue>(ordinal);
}

}  // namespace telegrad::kernels::cuda
