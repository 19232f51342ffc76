#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/device_access.h"
#include "base/event.h"
#include "base/mutex.h"
#include "base/stream.h"
#include "kernels/device_queue.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/device/buffer_pool.h"
#include "kvstore/engine/device/device_batch.h"

namespace telegrad {

// Copies in one direction, which are collected and then queued. One thread,
// but for the counts.
class LaneCopies {
 public:
  // `range`: a tool's name of what Queue does.
  explicit LaneCopies(const char* range) : range_(range) {}

  // Adds a copy. Copies of one `block` that are neighbours on both sides, with
  // the same space of at most the first one's `gap` between them, become one;
  // the space is copied along.
  void Add(Bytes to, ConstBytes from, const void* block, size_t gap);
  void Queue(kernels::DeviceQueue& queue, Stream stream);

  // Bytes and number of all copies that were queued.
  int64_t bytes() const { return bytes_; }
  int64_t count() const { return count_; }

 private:
  struct Copy {
    Bytes to;
    ConstBytes from;
    const void* block = nullptr;
    size_t gap = 0;
  };

  const char* const range_;
  std::vector<Copy> copies_;
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> count_{0};
};

// Where a store queues its work on one device: a stream of kernels, one of
// copies up to the device and one of copies down to the host. Kernels come
// after the copies up before them, copies down after the kernels before them;
// so what goes around through a server comes back in order. One thread queues,
// within a kernels::DeviceScope, and waits for nothing; what is said of other
// threads below they may call.
class DeviceLane {
 public:
  // Unimplemented, with the reason, where there is no such device.
  static absl::StatusOr<std::unique_ptr<DeviceLane>> Make(Device device);

  Device device() const { return queue_->device(); }
  // The device for which codecs are prepared.
  Device codec_device() const;
  const kernels::KernelTable& kernels() const { return *kernels_; }
  Stream stream() const { return compute_; }  // stream of kernels
  // Buffers of the host, which copies take, and of the device, for kernels.
  // Other threads, too.
  BufferPool& host_buffers() { return host_buffers_; }
  BufferPool& device_buffers() { return device_buffers_; }
  // What Launch, or Submit, queues.
  DeviceBatch& batch() { return batch_; }

  // Kernels and copies from now on come after it.
  void Follow(Event event);
  // Queued by Launch, EndUp or Submit, as LaneCopies says.
  void Up(Bytes to, ConstBytes from, const void* block = nullptr,
          size_t gap = 0);
  // To what kernels so far use: at once.
  void UpAfterKernels(Bytes to, ConstBytes from);
  // Kernels behind EndUp see what the network has brought so far.
  void TakeArrived() { has_arrived_ = true; }
  // Queued by Submit; those of one `block` of memory that lie there and on the
  // host as neighbours do, at most kMirrorGap apart, as one copy.
  void Down(Bytes to, ConstBytes from, const void* block = nullptr);
  // Kernels from now on come after the copies up so far; Submit does it, too.
  void EndUp();
  // Copies up, and what was collected in batch().
  void Launch();
  // Behind all kernels and copies up so far, and behind all copies down.
  struct Events {
    Event kernels;
    Event copies;
  };
  Events Submit();
  // What went wrong, if anything did, with what was queued so far: exit code
  // device_fault where the device says so.
  absl::Status status();

  // The rest: any thread. An event is Take's until Return.
  Event TakeEvent();
  void Return(Event event);
  bool Record(Event event, Stream stream);
  bool WaitOn(Stream stream, Event event);
  kernels::DeviceQueue::State Poll(Event event) { return queue_->Poll(event); }
  // Calls call(argument) once what `behind` is behind has passed; without it,
  // kernels and copies down so far.
  bool Notify(void (*call)(void*), void* argument, Event behind = {});
  // Waits, on the host: for where that is no part of a step.
  absl::Status Wait(Event event, TimePoint deadline);
  // A copy behind `after`, and its end.
  absl::Status CopyNow(Bytes to, ConstBytes from, Event after);
  // For all streams, and network cards if asked, zero-filled; waits.
  // ResourceExhausted where there is none left.
  absl::StatusOr<Buffer> MakeMemory(size_t size, bool is_for_cards = false);
  // The host's, which copies take.
  Buffer MakeHostMemory(size_t size);

  // Over the bus so far.
  int64_t up_bytes() const { return ups_.bytes(); }
  int64_t down_bytes() const { return downs_.bytes(); }
  int64_t num_ups() const { return ups_.count(); }
  int64_t num_downs() const { return downs_.count(); }

 private:
  explicit DeviceLane(std::unique_ptr<kernels::DeviceQueue> queue,
                      const kernels::KernelTable* kernels);

  const std::unique_ptr<kernels::DeviceQueue> queue_;
  const kernels::KernelTable* const kernels_;
  const Stream compute_;
  const Stream up_;
  const Stream down_;
  const Stream aside_;  // stream of CopyNow and the like
  const Stream ready_;  // stream of Notify
  const Event up_event_;
  const Event compute_event_;
  BufferPool host_buffers_;
  BufferPool device_buffers_;
  DeviceBatch batch_;
  absl::Status launched_;
  std::atomic<bool> warned_{false};  // said that pinned memory is missing
  bool has_up_ = false;
  bool has_arrived_ = false;
  LaneCopies ups_{"copies up"};
  LaneCopies downs_{"copies down"};

  Mutex mutex_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
};

// Where parts of a block begin; and how far from the end of what is before, as
// in front of them there may be 8 bytes that are not copied.
constexpr size_t kMirrorAlignment = 16;
constexpr size_t kMirrorGap = kMirrorAlignment - 1 + 8;

// ResourceExhausted, after an empty buffer of the lane: what the device says.
// Of its thread.
absl::Status NoDeviceMemory(DeviceLane& lane, size_t size);

// The exit codes' statuses of a device that failed, and of one that is full.
absl::Status DeviceFault(const std::string& why);
absl::Status DeviceOutOfMemory(const std::string& why);

}  // namespace telegrad
