#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "kvstore/collective/collective.h"
#include "kvstore/engine/device/device_lane.h"
#include "kvstore/nccl/group_op.h"
#include "kvstore/options.h"

namespace telegrad {

// One device of a GroupStore, a rank of its group. Buckets are queued there one
// behind the other, in the order of one stream: conversions, the group's sum,
// results. No host waits for the device, unless something has failed. One
// thread, within a kernels::DeviceScope; lane() as DeviceLane says.
class GroupDevice {
 public:
  // `options` have rank and device. All devices of a group are made at the same
  // time. Unavailable names what is not there.
  static absl::StatusOr<std::unique_ptr<GroupDevice>> Make(
      const GroupOptions& options, Device place,
      const OptimizerConfig& optimizer, bool counts_nonfinite,
      const AddressExchange& exchange);

  DeviceLane& lane() { return *lane_; }
  // Adds this device's place to each of `tensors`. Any thread, but one at a
  // time.
  absl::Status Place(std::span<const std::unique_ptr<GroupTensor>> tensors);

  // Queues what the bucket is; false where something has failed, which
  // TakeEnded says. `wake` is called with `argument` when it is done, as
  // DeviceQueue::Notify does.
  bool Queue(std::shared_ptr<GroupBucket> bucket, void (*wake)(void*),
             void* argument);
  bool is_idle() const { return under_way_.empty(); }
  // The next one of what was queued, in that order, once the device has done it
  // or never will.
  struct Ended {
    std::shared_ptr<GroupBucket> bucket;
    std::vector<absl::Status> statuses;  // by operation
  };
  std::optional<Ended> TakeEnded();
  // Returns when all devices have called it, or one has failed.
  void Close();

 private:
  struct UnderWay {
    std::shared_ptr<GroupBucket> bucket;
    absl::Status status = {};
    DeviceLane::Events events = {};
  };

  GroupDevice(std::unique_ptr<DeviceLane> lane, const GroupOptions& options,
              const OptimizerConfig& optimizer, bool counts_nonfinite);
  absl::Status WarmUp();
  absl::Status Begin(const GroupBucket& bucket);
  absl::Status Sum(const GroupBucket& bucket);
  bool IsLost(const UnderWay& first);

  const std::unique_ptr<DeviceLane> lane_;
  const size_t index_;
  const Duration timeout_;
  const OptimizerConfig optimizer_;
  const bool counts_nonfinite_;
  Buffer scratch_;                  // memory for kernels
  std::vector<Buffer> blocks_;      // what kernels count, here and on the host
  std::unique_ptr<Group> members_;  // null: its end is known to the others
  absl::Status status_;             // what has failed first
  std::deque<UnderWay> under_way_;
  TimePoint since_;  // when the first of `under_way_` could begin
};

}  // namespace telegrad
