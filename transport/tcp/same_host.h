#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/local_socket.h"
#include "base/socket.h"
#include "transport/tcp/wire.h"

// Peers on this machine. They are found by the name that belongs to a
// listener's address, which only processes of one network namespace can reach,
// and where the kernel permits it, large payloads are copied once, by the
// receiver.
namespace telegrad::tcp {

// A socket that leads to a peer, and who it is, where that is one of this
// machine that is reached without TCP.
struct PeerSocket {
  UniqueFd socket = {};
  std::optional<LocalPeer> same_host = {};
};

std::string SameHostName(absl::string_view address);
// Not open: nobody listens there, or it is not of this user.
PeerSocket ReachOnSameHost(absl::string_view address);
// Tests a socket that was reached or accepted; not open: not of this user.
PeerSocket Trusted(UniqueFd socket);

// This process's mark.
Mark MakeMark();

// Which of two processes of one machine reads the other's memory. One thread.
class PeerMemory {
 public:
  explicit PeerMemory(int peer_process) : peer_process_(peer_process) {}

  // Takes the peer's offer to have its memory read. InvalidArgument: it breaks
  // the protocol.
  absl::Status TakeOffer(const Offer& offer);
  absl::Status TakeAccept();

  // Whether it offered and is the one that it seems.
  bool reads_peer() const { return reads_peer_; }
  bool Read(Bytes target, uint64_t place) const;
  // Whether the peer is to copy `payload` from where it is.
  bool IsExposable(ConstBytes payload) const;

 private:
  const int peer_process_;  // 0: not known
  bool has_offered_ = false;
  bool reads_peer_ = false;
  bool is_read_by_peer_ = false;
};

}  // namespace telegrad::tcp
