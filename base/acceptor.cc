#include "base/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<std::string> Acceptor::Listen(const std::string& ip,
                                             Poller& poller, uint64_t key) {
  if (socket_.is_open()) {
    return absl::FailedPreconditionError("this context listens already");
  }
  ASSIGN_OR_RETURN(const SocketAddress address, ParseIp(ip, 0));
  ASSIGN_OR_RETURN(UniqueFd socket, ListenOn(address));
  ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(socket.get()));
  // Edge-triggered: no spinning while there are no descriptors to accept with.
  RETURN_IF_ERROR(poller.Watch(socket.get(), key, EPOLLIN | EPOLLET));
  socket_ = std::move(socket);
  return ToString(bound);
}

UniqueFd Acceptor::Accept() {
  while (true) {
    UniqueFd accepted(
        accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.is_open()) return accepted;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      LogWarning("accept: ", std::strerror(errno));
    }
    return accepted;
  }
}

}  // namespace telegrad
