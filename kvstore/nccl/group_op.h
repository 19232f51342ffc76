#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/event.h"
#include "kernels/encode_stats.h"
#include "kvstore/engine/device/device_lane.h"
#include "kvstore/kvstore.h"
#include "kvstore/ticket_state.h"

// What a GroupStore's devices do together. Members behind "The schedule's" are
// guarded by the mutex of GroupSchedule.
namespace telegrad {

struct GroupOp;

struct GroupTensor {
  // On one device; of its thread.
  struct Place {
    Buffer values = {};                      // float32
    kernels::EncodeStats* stats = nullptr;   // all gradients' so far
    kernels::EncodeStats* copied = nullptr;  // `stats` on the host
    const void* block = nullptr;             // has `stats`
  };
  TensorSpec spec = {};
  std::vector<Place> places = {};  // by device
  // The schedule's:
  uint64_t num_rounds = 0;
  bool has_value = false;
  std::shared_ptr<GroupOp> active = nullptr;
};

// kSpread is a broadcast of what the first device has.
enum class GroupKind : uint8_t { kPush, kPull, kPushPull, kBroadcast, kSpread };

// One operation on one tensor, in which every device takes part.
struct GroupOp {
  struct Events {
    Event grad = {};   // what was queued before the gradient may be read
    Event out = {};    // and before the result may be written
    Event ended = {};  // what the device does
  };

  explicit GroupOp(std::vector<DeviceLane*> of_lanes);
  ~GroupOp();
  GroupOp(const GroupOp&) = delete;
  GroupOp& operator=(const GroupOp&) = delete;

  // The operation comes behind what views' streams have been given so far.
  void Record();
  // What `stream` is given from now on comes behind the operation.
  bool WaitOn(Stream stream) const;

  const std::vector<DeviceLane*> lanes;  // by device
  std::vector<Events> events = {};       // by device
  GroupKind kind = GroupKind::kPush;
  GroupTensor* tensor = nullptr;
  int priority = 0;
  std::vector<TensorView> grads = {};  // by device; none: nothing is pushed
  std::vector<TensorView> outs = {};   // by device
  std::shared_ptr<Ticket::State> ticket = nullptr;
  uint64_t step = 0;  // rounds before it; known since it is in a bucket
};

// Operations of one kind, which all devices do at once.
struct GroupBucket {
  std::vector<std::shared_ptr<GroupOp>> ops = {};
  // The schedule's:
  std::vector<absl::Status> statuses = {};  // by operation
  size_t queued_left = 0;                   // devices
  size_t ended_left = 0;                    // devices
};

}  // namespace telegrad
