#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/engine/device/device_lane.h"

namespace telegrad {

// The caller's memory that an operation reads (`in`) and writes (`out`). Each
// use lies between Begin and End, on a device until what was queued has passed;
// Release ends the loan: later uses get copies. Thread-safe.
class BorrowedMemory {
 public:
  struct Use {
    ConstBytes in;
    Bytes out;
    bool is_borrowed = false;
  };

  // Lends memory of the device of `lane`, which outlives this, or of the host
  // where it is null. `in` is ready behind `ready`.
  BorrowedMemory(ConstBytes in, Bytes out, DeviceLane* lane = nullptr,
                 Event ready = {})
      : lane_(lane), ready_(ready), in_(in), out_(out) {}

  Use Begin() {
    MutexLock lock(&mutex_);
    if (!is_released_) ++num_uses_;
    return {in_, out_, !is_released_};
  }
  void End(bool is_borrowed) {
    if (!is_borrowed) return;
    MutexLock lock(&mutex_);
    if (--num_uses_ == 0) no_uses_.NotifyAll();
  }
  // Whether all uses of the caller's memory have ended by then.
  bool Release(TimePoint deadline) {
    MutexLock lock(&mutex_);
    if (!is_released_) {
      // Without memory for a copy the loan goes on.
      if (!Copy().ok()) return false;
      is_released_ = true;
      in_ = in_copy_.view();
      out_ = out_copy_.view();
    }
    while (num_uses_ > 0) {
      if (Clock::now() >= deadline) return false;
      no_uses_.WaitUntil(&mutex_, deadline);
    }
    return true;
  }

 private:
  absl::Status Copy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (lane_ == nullptr) {
      in_copy_ = Buffer(in_.size);
      out_copy_ = Buffer(out_.size);
      if (in_.size > 0) std::memcpy(in_copy_.data(), in_.data, in_.size);
      return absl::OkStatus();
    }
    absl::StatusOr<Buffer> in = lane_->MakeMemory(in_.size);
    absl::StatusOr<Buffer> out = lane_->MakeMemory(out_.size);
    if (!in.ok() || !out.ok()) return in.ok() ? out.status() : in.status();
    const absl::Status copied = lane_->CopyNow(in->view(), in_, ready_);
    if (!copied.ok()) return copied;
    in_copy_ = *std::move(in);
    out_copy_ = *std::move(out);
    return absl::OkStatus();
  }

  DeviceLane* const lane_;
  const Event ready_;
  Mutex mutex_;
  CondVar no_uses_;
  ConstBytes in_ ABSL_GUARDED_BY(mutex_);
  Bytes out_ ABSL_GUARDED_BY(mutex_);
  bool is_released_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t num_uses_ ABSL_GUARDED_BY(mutex_) = 0;
  Buffer in_copy_ ABSL_GUARDED_BY(mutex_);
  Buffer out_copy_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
