#include "kernels/cuda/device_copy.h"

#include <cuda_runtime_api.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "kernels/cuda/current_device.h"
#include "kernels/cuda/pinned.h"

namespace telegrad::kernels::cuda {
namespace {

// Both directions have a copy engine, so each has a stream.
struct Streams {
  cudaStream_t to_device = nullptr;
  cudaStream_t to_host = nullptr;
};

class Copier : public DeviceCopier {
 public:
  ~Copier() override {
    for (const auto& [ordinal, streams] : streams_) {
      const CurrentDevice current(ordinal);
      for (cudaStream_t stream : {streams.to_device, streams.to_host}) {
        if (stream == nullptr) continue;
        cudaStreamSynchronize(stream);
        cudaStreamDestroy(stream);
      }
    }
    const CurrentDevice current(UsedDevice());
    for (const auto& [ticket, copy] : copies_) cudaEventDestroy(copy.event);
    for (const auto& [ordinal, event] : idle_) cudaEventDestroy(event);
    for (const auto& [memory, size] : host_) UnmapPinned(memory, size);
  }

  DeviceKind device() const override { return DeviceKind::kCuda; }

  std::byte* AllocateHost(size_t size) override {
    std::byte* const memory = MapPinned(size);
    if (memory == nullptr) {
      const cudaError_t error = cudaGetLastError();
      Check(error == cudaSuccess ? cudaErrorMemoryAllocation : error);
      return nullptr;
    }
    host_[memory] = size;
    return memory;
  }

  void FreeHost(std::byte* memory) override {
    const auto found = host_.find(memory);
    if (found == host_.end()) return;
    UnmapPinned(memory, found->second);
    host_.erase(found);
  }

  Ticket Start(Bytes to, ConstBytes from) override {
    const Ticket ticket = ++last_ticket_;
    const bool to_device = to.device.kind == DeviceKind::kCuda;
    const int ordinal = to_device ? to.device.ordinal : from.device.ordinal;
    Copy copy;
    if (Begin(ordinal, to_device, to, from, &copy)) copies_[ticket] = copy;
    return ticket;
  }

  State Poll(Ticket ticket) override {
    const auto found = copies_.find(ticket);
    if (found == copies_.end()) return State::kFailed;  // was never begun
    const CurrentDevice current(found->second.ordinal);
    const cudaError_t result = cudaEventQuery(found->second.event);
    if (result == cudaErrorNotReady) {
      cudaGetLastError();  // it counts as one
      return State::kRunning;
    }
    idle_.emplace(found->second.ordinal, found->second.event);
    copies_.erase(found);
    return Check(result) ? State::kDone : State::kFailed;
  }

  std::string error() const override { return error_; }

 private:
  struct Copy {
    int ordinal = 0;
    cudaEvent_t event = nullptr;
  };

  bool Check(cudaError_t result) {
    if (result == cudaSuccess) return true;
    error_ = cudaGetErrorString(result);
    cudaGetLastError();  // so that nobody else takes it for theirs
    return false;
  }

  bool Begin(int ordinal, bool to_device, Bytes to, ConstBytes from,
             Copy* copy) {
    const CurrentDevice current(ordinal);
    Streams& streams = streams_[ordinal];
    cudaStream_t& stream = to_device ? streams.to_device : streams.to_host;
    if (stream == nullptr &&
        !Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) {
      return false;
    }
    copy->ordinal = ordinal;
    if (!TakeEvent(ordinal, &copy->event)) return false;
    const auto kind =
        to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    if (Check(cudaMemcpyAsync(to.data, from.data, from.size, kind, stream)) &&
        Check(cudaEventRecord(copy->event, stream))) {
      return true;
    }
    // What may have begun must not outlive its memory.
    cudaStreamSynchronize(stream);
    idle_.emplace(ordinal, copy->event);
    return false;
  }

  bool TakeEvent(int ordinal, cudaEvent_t* event) {
    const auto idle = idle_.find(ordinal);
    if (idle == idle_.end()) {
      return Check(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    *event = idle->second;
    idle_.erase(idle);
    return true;
  }

  std::map<int, Streams> streams_;  // by device
  std::unordered_map<Ticket, Copy> copies_;
  std::multimap<int, cudaEvent_t> idle_;  // by device
  std::unordered_map<std::byte*, size_t> host_;
  Ticket last_ticket_ = 0;
  std::string error_;
};

}  // namespace

std::unique_ptr<DeviceCopier> MakeCopier() {
  return std::make_unique<Copier>();
}

}  // namespace telegrad::kernels::cuda
