#include "base/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/resource_limit.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

absl::Status Failed(absl::string_view what, absl::string_view name) {
  const int error = errno;
  return SystemError(absl::StrCat(what, " @", name), error,
                     error == EADDRINUSE     ? absl::StatusCode::kAlreadyExists
                     : error == ECONNREFUSED ? absl::StatusCode::kNotFound
                                             : absl::StatusCode::kUnavailable);
}

// Abstract: a zero, and the name without one.
absl::StatusOr<SocketAddress> AbstractAddress(absl::string_view name) {
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  if (name.empty() || name.size() > 100) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is no name of a local socket"));
  }
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  SocketAddress address;
  std::memcpy(&address.storage, &local, sizeof(local));
  address.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

const sockaddr* AsSockaddr(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

UniqueFd LocalSocket() {
  return UniqueFd(
      socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

absl::StatusOr<UniqueFd> ListenLocal(absl::string_view name) {
  ASSIGN_OR_RETURN(const SocketAddress address, AbstractAddress(name));
  UniqueFd fd = LocalSocket();
  if (!fd.is_open()) return Failed("socket for", name);
  if (bind(fd.get(), AsSockaddr(address), address.length) != 0) {
    return Failed("bind", name);
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return Failed("listen on", name);
  return fd;
}

absl::StatusOr<UniqueFd> ConnectLocal(absl::string_view name) {
  ASSIGN_OR_RETURN(const SocketAddress address, AbstractAddress(name));
  UniqueFd fd = LocalSocket();
  if (!fd.is_open()) return Failed("socket for", name);
  while (connect(fd.get(), AsSockaddr(address), address.length) != 0) {
    if (errno != EINTR) return Failed("connect to", name);
  }
  return fd;
}

absl::StatusOr<LocalPeer> PeerOf(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return absl::UnavailableError(
        absl::StrCat("SO_PEERCRED: ", std::strerror(errno)));
  }
  return LocalPeer{.process = peer.pid, .is_same_user = peer.uid == geteuid()};
}

bool HasHungUp(int fd) {
  pollfd one = {.fd = fd, .events = 0, .revents = 0};
  return poll(&one, 1, 0) != 0;  // what is polled for nothing: error, hang-up
}

}  // namespace telegrad
