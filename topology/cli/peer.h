#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/socket.h"

namespace telegrad::topo {

// What one TCP connection to another host showed.
struct PeerResult {
  double connect_us = 0;
  double round_trip_us = 0;  // median of small messages
  double bytes_per_s = 0;    // one way, of kProbeBytes
  std::string machine_json = {};
};

constexpr size_t kProbeBytes = size_t{32} << 20;
constexpr size_t kMaxMachineBytes = size_t{8} << 20;

// Errors: it is not HOST:PORT.
absl::Status CheckPeerAddress(const std::string& address);

// Connects to a `doctor --serve` and measures. `address` is HOST:PORT. Errors
// name the address and the step; DeadlineExceeded after `timeout`.
absl::StatusOr<PeerResult> ProbePeer(const std::string& address,
                                     absl::string_view machine_json,
                                     Duration timeout);

// Answers probes on HOST:PORT, one after the other, until `until`; tells each
// peer's address and machine. The address is written as it was bound, so port 0
// takes a free one. What a peer sends is bounded in size and time.
class PeerServer {
 public:
  static absl::StatusOr<PeerServer> Listen(const std::string& address);
  const std::string& address() const { return address_; }
  // The machine of the peer that was served; DeadlineExceeded when none came.
  absl::StatusOr<std::string> ServeOne(absl::string_view machine_json,
                                       TimePoint until);

 private:
  PeerServer() = default;
  UniqueFd fd_;
  std::string address_;
};

}  // namespace telegrad::topo
