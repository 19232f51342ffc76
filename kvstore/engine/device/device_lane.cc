#include "kvstore/engine/device/device_lane.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kernels/tool_range.h"
#include "topology/numa.h"

namespace telegrad {
namespace {

using State = kernels::DeviceQueue::State;

constexpr int kUrgent = 1;
constexpr Duration kFaultGrace = std::chrono::seconds(60);
constexpr Duration kPollPause = std::chrono::microseconds(20);

std::string LaneName(Device device) {
  return device == kEmulatedDevice ? "the emulated device"
                                   : absl::StrCat("cuda:", device.ordinal);
}

}  // namespace

absl::Status DeviceOutOfMemory(const std::string& why) {
  return WithExitCode(ExitCode::kResourceLimit,
                      absl::ResourceExhaustedError(why));
}

absl::Status DeviceFault(const std::string& why) {
  return WithExitCode(ExitCode::kDeviceFault, absl::InternalError(why));
}

void LaneCopies::Add(Bytes to, ConstBytes from, const void* block, size_t gap) {
  copies_.push_back({Bytes(to.data, from.size, to.device), from, block, gap});
}

void LaneCopies::Queue(kernels::DeviceQueue& queue, Stream stream) {
  if (copies_.empty()) return;
  const kernels::ToolRange range(range_);
  std::sort(copies_.begin(), copies_.end(), [](const Copy& a, const Copy& b) {
    return a.from.data < b.from.data;
  });
  for (size_t i = 0; i < copies_.size();) {
    Copy copy = copies_[i++];
    for (; i < copies_.size(); ++i) {
      const Copy& next = copies_[i];
      const ptrdiff_t gap = next.from.data - copy.from.data -
                            static_cast<ptrdiff_t>(copy.from.size);
      if (next.block == nullptr || next.block != copy.block || gap < 0 ||
          gap > static_cast<ptrdiff_t>(copy.gap) ||
          next.to.data - copy.to.data != next.from.data - copy.from.data) {
        break;
      }
      copy.from.size += next.from.size + static_cast<size_t>(gap);
      copy.to.size = copy.from.size;
      copy.gap = next.gap;
    }
    queue.Copy(copy.to, copy.from, stream);
    bytes_ += static_cast<int64_t>(copy.from.size);
    ++count_;
  }
  copies_.clear();
}

absl::StatusOr<std::unique_ptr<DeviceLane>> DeviceLane::Make(Device device) {
  std::string why_not;
  std::unique_ptr<kernels::DeviceQueue> queue =
      kernels::MakeDeviceQueue(device, &why_not);
  const kernels::KernelTable* const kernels =
      device.kind == DeviceKind::kCpu
          ? &kernels::CpuKernels()
          : kernels::CudaKernels(device.ordinal, &why_not);
  if (queue == nullptr || kernels == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("tensors on ", LaneName(device), ": ", why_not));
  }
  const std::string bus_id = queue->bus_id();
  if (!bus_id.empty()) {
    queue->PlacePinned(NumaNodeOf(SysRoot::Live(), bus_id));
  }
  std::unique_ptr<DeviceLane> lane(new DeviceLane(std::move(queue), kernels));
  RETURN_IF_ERROR(lane->status());
  return lane;
}

DeviceLane::DeviceLane(std::unique_ptr<kernels::DeviceQueue> queue,
                       const kernels::KernelTable* kernels)
    : queue_(std::move(queue)),
      kernels_(kernels),
      compute_(queue_->MakeStream(kUrgent)),
      up_(queue_->MakeStream(kUrgent)),
      down_(queue_->MakeStream(kUrgent)),
      aside_(queue_->MakeStream(0)),
      ready_(queue_->MakeStream(0)),
      up_event_(queue_->MakeEvent()),
      compute_event_(queue_->MakeEvent()),
      host_buffers_([this](size_t size) { return MakeHostMemory(size); }),
      device_buffers_(
          [this](size_t size) { return queue_->MakeMemory(size, compute_); }),
      batch_(queue_.get(), kernels, compute_) {}

Device DeviceLane::codec_device() const {
  return device() == kEmulatedDevice ? Device{} : device();
}

void DeviceLane::Follow(Event event) {
  queue_->WaitOn(compute_, event);
  queue_->WaitOn(up_, event);
}

void DeviceLane::Up(Bytes to, ConstBytes from, const void* block, size_t gap) {
  ups_.Add(to, from, block, gap);
  has_up_ = true;
}

void DeviceLane::UpAfterKernels(Bytes to, ConstBytes from) {
  const Event event = TakeEvent();
  queue_->Record(event, compute_);
  queue_->WaitOn(up_, event);
  Return(event);  // what waits has seen it
  Up(to, from);
  ups_.Queue(*queue_, up_);
}

void DeviceLane::Down(Bytes to, ConstBytes from, const void* block) {
  downs_.Add(to, from, block, kMirrorGap);
}

void DeviceLane::Launch() {
  ups_.Queue(*queue_, up_);
  launched_.Update(batch_.Launch());
}

void DeviceLane::EndUp() {
  if (std::exchange(has_arrived_, false)) queue_->SeeCardWrites();
  ups_.Queue(*queue_, up_);
  if (!std::exchange(has_up_, false)) return;
  queue_->Record(up_event_, up_);
  queue_->WaitOn(compute_, up_event_);
}

DeviceLane::Events DeviceLane::Submit() {
  Launch();
  EndUp();
  const Events events = {TakeEvent(), TakeEvent()};
  queue_->Record(events.kernels, compute_);
  queue_->WaitOn(down_, events.kernels);
  downs_.Queue(*queue_, down_);
  queue_->Record(events.copies, down_);
  return events;
}

absl::Status DeviceLane::status() {
  if (!launched_.ok()) return std::exchange(launched_, absl::OkStatus());
  const std::string error = queue_->TakeError();
  return error.empty() ? absl::OkStatus() : DeviceFault(error);
}

Event DeviceLane::TakeEvent() {
  {
    MutexLock lock(&mutex_);
    if (!events_.empty()) {
      const Event event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  return queue_->MakeEvent();
}

void DeviceLane::Return(Event event) {
  if (event.handle == nullptr) return;
  MutexLock lock(&mutex_);
  events_.push_back(event);
}

bool DeviceLane::Record(Event event, Stream stream) {
  return queue_->Record(event, stream);
}

bool DeviceLane::WaitOn(Stream stream, Event event) {
  return queue_->WaitOn(stream, event);
}

// The copies down come after the kernels.
bool DeviceLane::Notify(void (*call)(void*), void* argument, Event behind) {
  if (behind.handle == nullptr) return queue_->Notify(down_, call, argument);
  return queue_->WaitOn(ready_, behind) &&
         queue_->Notify(ready_, call, argument);
}

absl::Status DeviceLane::Wait(Event event, TimePoint deadline) {
  while (true) {
    switch (queue_->Poll(event)) {
      case State::kPassed:
        return absl::OkStatus();
      case State::kFailed: {
        const std::string why = queue_->TakeError();
        return DeviceFault(
            why.empty()
                ? absl::StrCat(LaneName(device()), ": what was queued failed")
                : why);
      }
      case State::kRunning:
        if (Clock::now() >= deadline) {
          return DeviceFault(absl::StrCat(LaneName(device()), " does not end"));
        }
        std::this_thread::sleep_for(kPollPause);
    }
  }
}

absl::Status DeviceLane::CopyNow(Bytes to, ConstBytes from, Event after) {
  const Event event = TakeEvent();
  queue_->WaitOn(aside_, after);
  queue_->Copy(to, from, aside_);
  queue_->Record(event, aside_);
  const absl::Status status = Wait(event, Clock::now() + kFaultGrace);
  Return(event);
  return status;
}

absl::StatusOr<Buffer> DeviceLane::MakeMemory(size_t size, bool is_for_cards) {
  if (size == 0) return Buffer();
  Buffer memory = is_for_cards ? queue_->MakeCardMemory(size)
                               : queue_->MakeMemory(size, compute_);
  if (memory.size() == size) {
    const Event event = TakeEvent();
    queue_->Record(event, compute_);
    RETURN_IF_ERROR(Wait(event, Clock::now() + kFaultGrace));
    Return(event);
    return memory;
  }
  return DeviceOutOfMemory(queue_->TakeError());
}

absl::Status NoDeviceMemory(DeviceLane& lane, size_t size) {
  const absl::Status told = lane.status();
  return DeviceOutOfMemory(told.ok() ? absl::StrCat(LaneName(lane.device()),
                                                    ": ", size, " bytes wanted")
                                     : std::string(told.message()));
}

// Copies of ordinary memory are slower, and the same.
Buffer DeviceLane::MakeHostMemory(size_t size) {
  Buffer pinned = queue_->MakePinned(size);
  if (pinned.size() == size) return pinned;
  if (!warned_.exchange(true)) {
    LogWarning(LaneName(device()), ": there are no ", size,
               " bytes of pinned memory; copies take longer");
  }
  return Buffer(size);
}

}  // namespace telegrad
