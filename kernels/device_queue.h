#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/device.h"
#include "base/event.h"
#include "base/stream.h"

namespace telegrad::kernels {

// Work of one device: streams, events, copies and memory. No call waits for the
// device but the destructor, MakeCardMemory and, while memory grows, MakePinned
// and MakeMemory.
// What a call queues keeps the memory that it was given until an event recorded
// behind it has passed. Kernels of a table (dispatch.h) are queued on its
// streams within a DeviceScope. Thread-safe; the thread's current device is
// left as it was. A call that returns false, a null handle or an empty buffer
// has said why to TakeError.
class DeviceQueue {
 public:
  enum class State : uint8_t { kRunning, kPassed, kFailed };

  // Waits for all work on its streams; ends its streams and events.
  virtual ~DeviceQueue() = default;

  virtual Device device() const = 0;
  // The GPU's address on the PCI bus ("0000:81:00.0"); "" where it has none.
  virtual std::string bus_id() const { return ""; }
  // Memory of MakePinned is on this NUMA node from now on, where there is room
  // and the system allows it; -1: where the calling thread is.
  virtual void PlacePinned(int) {}

  // A stream that waits for no other; the device prefers work of higher
  // priority, from 0 up to what it knows.
  virtual Stream MakeStream(int priority) = 0;
  virtual Event MakeEvent() = 0;

  // The event is now behind what `stream` has been given so far. An event that
  // is recorded again forgets where it was.
  virtual bool Record(Event event, Stream stream) = 0;
  // What `stream` is given from now on runs after `event`, which may be another
  // device's or library's. The host waits for nothing.
  virtual bool WaitOn(Stream stream, Event event) = 0;
  // kPassed for one that was never recorded, too. kFailed: the work failed.
  virtual State Poll(Event event) = 0;
  // Calls call(argument) from some thread when `stream` has got there. It must
  // be short and use no device.
  virtual bool Notify(Stream stream, void (*call)(void*), void* argument) = 0;

  // Queues a copy of from.size bytes. Host memory is from MakePinned; with
  // other host memory the call may wait for the device.
  virtual bool Copy(Bytes to, ConstBytes from, Stream stream) = 0;

  // Host memory, zero-filled, aligned to a page, that every device reaches
  // without the CPU; ordinary pages to other processes and to network cards.
  // Empty where there is none, which is no error: HostMemory.
  virtual Buffer MakePinned(size_t size) = 0;
  // The device's, from a pool, zero-filled in the order of `stream`. It goes
  // back to the pool in that order, too: when it is freed, other streams must
  // be done with it. A stream that this queue did not make outlives it.
  virtual Buffer MakeMemory(size_t size, Stream stream) = 0;
  // The device's, zero-filled, for network cards, which reach none of a pool.
  // Waits for the device, and so does its end.
  virtual Buffer MakeCardMemory(size_t size) = 0;
  // What network cards have written there is seen by kernels and copies that
  // are queued from now on.
  virtual bool SeeCardWrites() = 0;

  // What went wrong first since the last call, of calls to this queue and of
  // launches by this thread: the device's name and CUDA's text. "" nothing.
  virtual std::string TakeError() = 0;
};

// Pinned memory, or ordinary memory where there is none: copies are the same,
// but the call waits for them.
inline Buffer HostMemory(DeviceQueue& queue, size_t size) {
  Buffer pinned = queue.MakePinned(size);
  return pinned.size() == size ? std::move(pinned) : Buffer(size);
}

// For a CPU, the emulated device included, all is done when a call returns.
// Null with the reason in `why_not` (unless null) where there is no such GPU.
std::unique_ptr<DeviceQueue> MakeDeviceQueue(Device device,
                                             std::string* why_not);

}  // namespace telegrad::kernels
