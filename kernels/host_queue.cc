#include "kernels/host_queue.h"

#include <cstring>

#include "base/device_access.h"

namespace telegrad::kernels {
namespace {

class HostQueue : public DeviceQueue {
 public:
  explicit HostQueue(Device device) : device_(device) {}

  Device device() const override { return device_; }
  Stream MakeStream(int) override { return {}; }
  Event MakeEvent() override { return {}; }
  bool Record(Event, Stream) override { return true; }
  bool WaitOn(Stream, Event) override { return true; }
  State Poll(Event) override { return State::kPassed; }

  bool Notify(Stream, void (*call)(void*), void* argument) override {
    call(argument);
    return true;
  }

  bool Copy(Bytes to, ConstBytes from, Stream) override {
    if (from.size == 0) return true;
    std::memmove(Reach(to).data, Reach(from).data, from.size);
    return true;
  }

  Buffer MakePinned(size_t size) override { return Buffer(size); }
  Buffer MakeMemory(size_t size, Stream) override {
    return device_ == kEmulatedDevice ? MakeEmulatedBuffer(size) : Buffer(size);
  }
  Buffer MakeCardMemory(size_t size) override { return MakeMemory(size, {}); }
  bool SeeCardWrites() override { return true; }
  std::string TakeError() override { return ""; }

 private:
  const Device device_;
};

}  // namespace

std::unique_ptr<DeviceQueue> MakeHostQueue(Device device) {
  return std::make_unique<HostQueue>(device);
}

}  // namespace telegrad::kernels
