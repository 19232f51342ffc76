#include "transport/ucx/shared_memory.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "transport/ucx/host.h"

namespace telegrad::ucx {

absl::StatusOr<Config> SharedMemory::Open(const TransportOptions& options) {
  const std::string identity = HostIdentity();
  if (identity.empty()) {
    return absl::UnavailableError("/proc does not tell the host's identity");
  }
  ASSIGN_OR_RETURN(Config config, MakeShmConfig(options));
  ASSIGN_OR_RETURN(context_, MakeContext(config));
  identity_ = identity;
  return config;
}

void SharedMemory::Close() {
  retired_.clear();
  if (context_ != nullptr) ucp_cleanup(std::exchange(context_, nullptr));
}

absl::Status SharedMemory::OpenLane(Endpoint& endpoint) {
  ASSIGN_OR_RETURN(auto lane, Lane::Make(context_, on_arrived_, &endpoint));
  if (lane->address().size() > kMaxControlBytes) {
    return absl::UnimplementedError("UCX's address is too long");
  }
  RETURN_IF_ERROR(poller_.Watch(lane->fd(), kWorkerKey, EPOLLIN));
  lanes_.push_back(lane.get());
  endpoint.lane = std::move(lane);
  return absl::OkStatus();
}

void SharedMemory::DropLane(Endpoint& endpoint) {
  if (endpoint.lane == nullptr) return;
  lanes_.erase(std::find(lanes_.begin(), lanes_.end(), endpoint.lane.get()));
  endpoint.lane->Cut();
  endpoint.lane->Disown();
  retired_.push_back({std::move(endpoint.lane), Clock::now() + kCutGrace});
}

unsigned SharedMemory::Poll() const {
  unsigned num_events = 0;
  for (const Lane* lane : lanes_) num_events += lane->Poll();
  return num_events;
}

bool SharedMemory::Arm() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane* lane) {
    return ucp_worker_arm(lane->worker()) == UCS_OK;
  });
}

void SharedMemory::AdvanceRetired() {
  const TimePoint now = Clock::now();
  std::erase_if(retired_, [now](auto& retired) {
    retired.lane->Poll();
    if (retired.lane->IsQuiet()) return true;
    if (now < retired.until) return false;
    retired.lane->ExpectLeftovers();
    return true;
  });
}

TimePoint SharedMemory::NextTimer() const {
  TimePoint next = TimePoint::max();
  for (const Retired& retired : retired_) next = std::min(next, retired.until);
  return next;
}

}  // namespace telegrad::ucx
