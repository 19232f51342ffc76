#include "kvstore/nccl/group_op.h"

#include <algorithm>
#include <utility>

namespace telegrad {

GroupOp::GroupOp(std::vector<DeviceLane*> of_lanes)
    : lanes(std::move(of_lanes)) {
  for (DeviceLane* const lane : lanes) {
    events.push_back({lane->TakeEvent(), lane->TakeEvent(), lane->TakeEvent()});
  }
}

GroupOp::~GroupOp() {
  for (size_t i = 0; i < lanes.size(); ++i) {
    for (const Event event : {events[i].grad, events[i].out, events[i].ended}) {
      lanes[i]->Return(event);
    }
  }
}

// What fails is the lane's status.
void GroupOp::Record() {
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!grads.empty()) lanes[i]->Record(events[i].grad, grads[i].stream);
    if (!outs.empty()) lanes[i]->Record(events[i].out, outs[i].stream);
  }
}

bool GroupOp::WaitOn(Stream stream) const {
  bool waits = true;
  for (size_t i = 0; i < lanes.size(); ++i) {
    waits = lanes[i]->WaitOn(stream, events[i].ended) && waits;
  }
  return waits;
}

}  // namespace telegrad
