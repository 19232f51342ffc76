#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/poller.h"
#include "base/socket.h"

namespace telegrad {

// A listening socket whose connections a Poller tells of.
class Acceptor {
 public:
  // Listens on a free port of `ip`, a number, and returns "IP:PORT". `poller`
  // says `key` when somebody connects; then Accept until there is none. With
  // `checks_user` other users of this machine are not accepted (peer_user.h).
  // FailedPrecondition when it listens already.
  absl::StatusOr<std::string> Listen(const std::string& ip, Poller& poller,
                                     uint64_t key, bool checks_user);
  // Listens for processes of this machine, by a name (local_socket.h).
  absl::Status ListenLocal(absl::string_view name, Poller& poller,
                           uint64_t key);

  // The next connection, non-blocking; not open: there is none for now.
  UniqueFd Accept();

 private:
  absl::Status CheckIsNew() const;
  absl::Status Watch(UniqueFd socket, Poller& poller, uint64_t key);

  UniqueFd socket_;
  bool checks_user_ = false;
  bool has_told_ = false;  // another user's refusal is logged once
};

}  // namespace telegrad
