#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/device.h"
#include "base/mutex.h"
#include "kvstore/operations/place.h"

namespace telegrad {
class DeviceLane;
}  // namespace telegrad

namespace telegrad::operations {

// The device of Request::device; of host memory Device().
Device DeviceOf(int number);

// A GPU's memory. One thread but for the lane's.
class DevicePlace : public Place {
 public:
  // What is queued has `timeout` to end.
  DevicePlace(std::unique_ptr<DeviceLane> lane, Duration timeout);
  ~DevicePlace() override;

  DeviceLane& lane() { return *lane_; }
  // `group` is what Ready gives.
  void Use(Group* group) { group_ = group; }
  // Whether Multiply takes the type.
  static bool Multiplies(Dtype type);
  // What is queued from now on comes behind `mine`'s arrays being ready.
  void Follow(Submission& mine);

  void Copy(const void* from, size_t bytes, void* to) override;
  void Multiply(Dtype type, double factor, size_t count, void* data) override;
  absl::StatusOr<Buffer> Make(size_t bytes) override;
  absl::StatusOr<Group*> Ready() override;

  // Waits for what was queued.
  absl::Status Finish();

  // CopyDown makes the same requests of copies of their arrays in pinned host
  // memory, null for null; CopyUp brings their results back.
  using Shared = std::shared_ptr<Submission>;
  absl::StatusOr<std::vector<Shared>> CopyDown(const std::vector<Shared>& mine);
  absl::Status CopyUp(const std::vector<Shared>& copies,
                      const std::vector<Shared>& mine);

 private:
  Buffer& fusion() override { return fusion_; }
  void MultiplyHalves(Dtype type, float factor, size_t count, void* data);

  const std::unique_ptr<DeviceLane> lane_;
  const Duration timeout_;
  Group* group_ = nullptr;
  Buffer fusion_, wide_;
  absl::Status failed_;  // what could not be queued since Ready
};

// The GPUs of this process on which requests have arrays, from the first such
// request on. Thread-safe.
class Devices {
 public:
  explicit Devices(Duration timeout) : timeout_(timeout) {}

  // Unimplemented names a GPU that cannot be used, and why.
  absl::StatusOr<DevicePlace*> Find(int number);
  // Notes behind what `mine`'s arrays are ready; on the caller's thread.
  // InvalidArgument: its stream records a graph.
  absl::Status Note(Submission& mine);

 private:
  const Duration timeout_;
  Mutex mutex_;
  std::map<int, std::unique_ptr<DevicePlace>> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad::operations
