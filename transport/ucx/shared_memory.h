#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/poller.h"
#include "transport/transport.h"
#include "transport/ucx/config.h"
#include "transport/ucx/lane.h"
#include "transport/ucx/records.h"

namespace telegrad::ucx {

// The key of all descriptors in the poller: whatever is ready, all workers are
// asked.
constexpr uint64_t kWorkerKey = 0;
// How long UCX may take to finish what it has cancelled.
constexpr Duration kCutGrace = std::chrono::seconds(1);

// Lanes to peers of this host: those in use, and those that UCX tidies up after
// the end of their endpoints, for at most kCutGrace. One thread.
class SharedMemory {
 public:
  // Lanes have `on_arrived`, and are waited for by `poller`.
  SharedMemory(Poller& poller, ucp_am_recv_callback_t on_arrived)
      : poller_(poller), on_arrived_(on_arrived) {}
  ~SharedMemory() { Close(); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // What is used of UCX, or why there is none.
  absl::StatusOr<Config> Open(const TransportOptions& options);
  // Once no endpoint has a lane.
  void Close();
  ucp_context_h context() const { return context_; }         // may be null
  const std::string& identity() const { return identity_; }  // empty: none

  absl::Status OpenLane(Endpoint& endpoint);
  void DropLane(Endpoint& endpoint);
  size_t num_lanes() const { return lanes_.size(); }

  unsigned Poll() const;
  // False: there is something to do.
  bool Arm() const;
  bool has_retired() const { return !retired_.empty(); }
  void AdvanceRetired();
  TimePoint NextTimer() const;

 private:
  struct Retired {
    std::unique_ptr<Lane> lane;
    TimePoint until;
  };

  Poller& poller_;
  const ucp_am_recv_callback_t on_arrived_;
  ucp_context_h context_ = nullptr;
  std::string identity_;  // the host's identity
  std::vector<Lane*> lanes_;
  std::vector<Retired> retired_;
};

}  // namespace telegrad::ucx
