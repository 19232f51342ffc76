#include "base/peer_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/socket.h"

namespace telegrad {
namespace {

// An address as sock_diag has it.
struct End {
  uint16_t port = 0;  // both in network order
  uint32_t ip[4] = {};
  bool is_v6 = false;
};

std::optional<End> EndOf(const SocketAddress& address) {
  End end;
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address.storage, sizeof(v4));
    end.port = v4.sin_port;
    end.ip[0] = v4.sin_addr.s_addr;
    return end;
  }
  if (address.storage.ss_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address.storage, sizeof(v6));
  end.port = v6.sin6_port;
  end.is_v6 = !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
  static_assert(sizeof(end.ip) == sizeof(v6.sin6_addr));
  std::memcpy(end.ip, &v6.sin6_addr, sizeof(end.ip));
  if (!end.is_v6) end.ip[0] = end.ip[3];
  return end;
}

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 wanted;
};

// State and user of this machine's socket with these two ends. Nothing: there
// is none, or the kernel does not tell.
std::optional<inet_diag_msg> Look(const End& from, const End& to) {
  const UniqueFd kernel(
      socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel.is_open()) return std::nullopt;
  Request request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.wanted.sdiag_family = from.is_v6 ? AF_INET6 : AF_INET;
  request.wanted.sdiag_protocol = IPPROTO_TCP;
  request.wanted.idiag_states = ~0U;
  inet_diag_sockid& id = request.wanted.id;
  id.idiag_sport = from.port;
  id.idiag_dport = to.port;
  std::memcpy(id.idiag_src, from.ip, sizeof(from.ip));
  std::memcpy(id.idiag_dst, to.ip, sizeof(to.ip));
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  // The kernel answers before send() returns.
  if (send(kernel.get(), &request, sizeof(request), MSG_DONTWAIT) < 0) {
    return std::nullopt;
  }
  alignas(nlmsghdr) char answer[512];
  const ssize_t size = recv(kernel.get(), answer, sizeof(answer), MSG_DONTWAIT);
  if (size < static_cast<ssize_t>(NLMSG_SPACE(sizeof(inet_diag_msg)))) {
    return std::nullopt;
  }
  nlmsghdr header{};
  std::memcpy(&header, answer, sizeof(header));
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  inet_diag_msg found{};
  std::memcpy(&found, answer + NLMSG_HDRLEN, sizeof(found));
  return found;
}

}  // namespace

absl::Status CheckPeerUser(int fd) {
  SocketAddress peer;
  peer.length = sizeof(peer.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage),
                  &peer.length) != 0 ||
      !IsLoopback(peer)) {
    return absl::OkStatus();
  }
  const absl::StatusOr<SocketAddress> own = LocalAddress(fd);
  if (!own.ok()) return absl::OkStatus();
  const std::optional<End> here = EndOf(*own), there = EndOf(peer);
  if (!here.has_value() || !there.has_value()) return absl::OkStatus();
  const std::optional<inet_diag_msg> found = Look(*there, *here);
  // Whoever is not told of its own end is told nothing.
  if (!found.has_value() && !Look(*here, *there).has_value()) {
    return absl::OkStatus();
  }
  // What is closed has no user any more, which reads as root's.
  if (!found.has_value() || found->idiag_state != TCP_ESTABLISHED) {
    return absl::UnavailableError("closed before its user was known");
  }
  if (found->idiag_uid == geteuid() || found->idiag_uid == 0) {
    return absl::OkStatus();
  }
  const std::string users =
      absl::StrCat("it is of user ", found->idiag_uid,
                   " of this machine, this process of ", geteuid());
  return WithExitCode(
      ExitCode::kAuthentication,
      absl::UnauthenticatedError(
          absl::StrCat(users,
                       ", and without a secret a job is of one user: give all "
                       "members --secret-file, or run them as one")));
}

}  // namespace telegrad
