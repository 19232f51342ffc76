#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/decorators/bounce/pinned_pool.h"

namespace telegrad::bounce {

// A copy that is under way, or has ended. No buffer: nothing to copy.
struct Copy {
  std::byte* buffer = nullptr;
  kernels::DeviceCopier::Ticket ticket = 0;
  bool is_running = false;
  bool has_failed = false;
};

// Copies of one device, and the pinned memory that they go through. One thread.
class DeviceCopies {
 public:
  DeviceCopies(std::unique_ptr<kernels::DeviceCopier> copier, size_t keep_bytes)
      : copier_(std::move(copier)), pool_(*copier_, keep_bytes) {}

  DeviceKind device() const { return copier_->device(); }
  size_t num_running() const { return num_running_; }

  // Pinned memory of `size` bytes, at least; false where there is none.
  bool TakeBuffer(Copy& copy, size_t size) {
    copy.buffer = pool_.Get(size);
    return copy.buffer != nullptr;
  }
  void Start(Copy& copy, Bytes to, ConstBytes from) {
    copy.ticket = copier_->Start(to, from);
    copy.is_running = true;
    ++num_running_;
  }
  // Whether it still runs.
  bool Poll(Copy& copy) {
    if (!copy.is_running) return false;
    const auto state = copier_->Poll(copy.ticket);
    if (state == kernels::DeviceCopier::State::kRunning) return true;
    copy.is_running = false;
    copy.has_failed = state == kernels::DeviceCopier::State::kFailed;
    --num_running_;
    return false;
  }
  // Gives back the buffer of a copy that does not run.
  void Drop(Copy& copy) {
    if (copy.buffer != nullptr) pool_.Put(std::exchange(copy.buffer, nullptr));
  }

  absl::Status CopyError() const {
    return absl::InternalError(absl::StrCat(
        "a copy between device and host failed: ", copier_->error()));
  }
  absl::Status MemoryError(size_t size) const {
    return absl::ResourceExhaustedError(
        absl::StrCat(size, " bytes of pinned memory: ", copier_->error()));
  }

 private:
  std::unique_ptr<kernels::DeviceCopier> copier_;
  PinnedPool pool_;
  size_t num_running_ = 0;
};

}  // namespace telegrad::bounce
