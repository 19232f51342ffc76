#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kvstore/nccl/group_op.h"

namespace telegrad {

// Which operations a GroupStore's devices do next: buckets of what waits, the
// most urgent first, for all devices alike, as collectives come in one order.
// While two buckets are under way the next one gathers, until it is full or
// somebody waits for what is in it. Thread-safe; no lock is held while a device
// is asked for anything.
class GroupSchedule {
 public:
  explicit GroupSchedule(size_t num_devices) : devices_(num_devices) {}

  // FailedPrecondition: the tensor has another one, or no value to be pulled.
  absl::Status Add(const std::shared_ptr<GroupOp>& op);
  // Returns when the end of the tensor's operation, if it is queued, is there.
  void AwaitQueued(const GroupTensor& tensor);
  // Somebody waits for one of those that wait.
  void Hurry();
  // What has not begun does nothing; what has is waited for.
  void Release(const std::shared_ptr<GroupOp>& op);
  // Nothing is added from now on.
  void Close();
  int64_t num_buckets() const;

  // For the thread of `device`: the next bucket, once there is one. Null: the
  // device may have done something, or it is `is_over`.
  std::shared_ptr<GroupBucket> Next(size_t device, bool is_idle, bool* is_over);
  // It has done something.
  void Wake(size_t device);
  // A device has queued a bucket; has done it, with these ends of operations.
  void Queued(GroupBucket& bucket);
  // The bucket's first error, once all devices have.
  absl::Status End(GroupBucket& bucket,
                   const std::vector<absl::Status>& statuses);

 private:
  struct PerDevice {
    std::deque<std::shared_ptr<GroupBucket>> buckets = {};
    bool is_woken = false;
  };

  bool BeginNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<PerDevice> devices_ ABSL_GUARDED_BY(mutex_);
  // What no device has begun, in the order in which it came.
  std::vector<std::shared_ptr<GroupOp>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool hurries_ ABSL_GUARDED_BY(mutex_) = false;  // for what is in `waiting_`
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t num_buckets_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_under_way_ ABSL_GUARDED_BY(mutex_) = 0;  // buckets
};

}  // namespace telegrad
