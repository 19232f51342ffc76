#include "base/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/local_socket.h"
#include "base/log.h"
#include "base/peer_user.h"
#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<std::string> Acceptor::Listen(const std::string& ip,
                                             Poller& poller, uint64_t key,
                                             bool checks_user) {
  RETURN_IF_ERROR(CheckIsNew());
  ASSIGN_OR_RETURN(const SocketAddress address, ParseIp(ip, 0));
  ASSIGN_OR_RETURN(UniqueFd socket, ListenOn(address));
  ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(socket.get()));
  RETURN_IF_ERROR(Watch(std::move(socket), poller, key));
  checks_user_ = checks_user;
  return ToString(bound);
}

absl::Status Acceptor::ListenLocal(absl::string_view name, Poller& poller,
                                   uint64_t key) {
  RETURN_IF_ERROR(CheckIsNew());
  ASSIGN_OR_RETURN(UniqueFd socket, telegrad::ListenLocal(name));
  return Watch(std::move(socket), poller, key);
}

absl::Status Acceptor::CheckIsNew() const {
  if (!socket_.is_open()) return absl::OkStatus();
  return absl::FailedPreconditionError("this context listens already");
}

// Edge-triggered: no spinning while there are no descriptors to accept with.
absl::Status Acceptor::Watch(UniqueFd socket, Poller& poller, uint64_t key) {
  RETURN_IF_ERROR(poller.Watch(socket.get(), key, EPOLLIN | EPOLLET));
  socket_ = std::move(socket);
  return absl::OkStatus();
}

UniqueFd Acceptor::Accept() {
  while (true) {
    UniqueFd accepted(
        accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.is_open()) {
      const absl::Status user =
          checks_user_ ? CheckPeerUser(accepted.get()) : absl::OkStatus();
      if (user.ok()) return accepted;
      if (absl::IsUnauthenticated(user) && !std::exchange(has_told_, true)) {
        LogWarning("refused a connection over loopback: ", user.message());
      }
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      LogWarning("accept: ", std::strerror(errno));
    }
    return accepted;
  }
}

}  // namespace telegrad
