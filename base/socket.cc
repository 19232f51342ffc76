#include "base/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/resource_limit.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

absl::Status Failed(absl::string_view what, const SocketAddress& address,
                    int error) {
  const absl::StatusCode code = error == EADDRINUSE
                                    ? absl::StatusCode::kAlreadyExists
                                    : absl::StatusCode::kUnavailable;
  return SystemError(absl::StrCat(what, " ", ToString(address)), error, code);
}

void SetOption(int fd, int level, int name, int value) {
  // Best effort: the heartbeat does not depend on any of them.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text,
                                       int lowest_port) {
  const size_t colon = std::min(text.rfind(':'), text.size());
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port = text.substr(std::min(colon + 1, text.size()));
  const bool has_brackets =
      host.size() > 1 && host.front() == '[' && host.back() == ']';
  if (has_brackets) host = host.substr(1, host.size() - 2);
  const bool is_host =
      !host.empty() && host.find_first_of("[]") == absl::string_view::npos &&
      (host.find(':') != absl::string_view::npos) == has_brackets;
  const bool is_number =
      !port.empty() && absl::c_all_of(port, absl::ascii_isdigit);
  HostPort result{.host = std::string(host)};
  if (!is_host || !is_number || !absl::SimpleAtoi(port, &result.port) ||
      result.port < lowest_port || result.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", text, "\" is not host:port"));
  }
  return result;
}

std::string FormatHostPort(absl::string_view host, int port) {
  const bool is_v6 = host.find(':') != absl::string_view::npos;
  return is_v6 ? absl::StrCat("[", host, "]:", port)
               : absl::StrCat(host, ":", port);
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host,
                                                   int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("host \"", host, "\": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                                 freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) {
    return absl::UnavailableError(
        absl::StrCat("host \"", host, "\": no address"));
  }
  return addresses;
}

absl::StatusOr<SocketAddress> ParseIp(const std::string& ip, int port) {
  in6_addr any{};
  if (inet_pton(AF_INET, ip.c_str(), &any) != 1 &&
      inet_pton(AF_INET6, ip.c_str(), &any) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", ip, "\" is not an IP address"));
  }
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   Resolve(ip, port));
  return addresses.front();
}

absl::StatusOr<SocketAddress> ParseIpPort(absl::string_view text) {
  ASSIGN_OR_RETURN(const HostPort parts, ParseHostPort(text));
  return ParseIp(parts.host, parts.port);
}

bool IsLoopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address.storage, sizeof(v4));
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.storage.ss_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address.storage, sizeof(v6));
  if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) return true;
  return IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127;
}

std::string ToString(const SocketAddress& address) {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "0";
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage),
                  address.length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown address";
  }
  int number = 0;
  (void)absl::SimpleAtoi(port, &number);
  return FormatHostPort(host, number);
}

absl::StatusOr<UniqueFd> ListenOn(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family,
                     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return Failed("socket for", address, errno);
  SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage),
           address.length) != 0) {
    return Failed("bind", address, errno);
  }
  if (listen(fd.get(), SOMAXCONN) != 0) {
    return Failed("listen on", address, errno);
  }
  return fd;
}

absl::StatusOr<SocketAddress> LocalAddress(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage),
                  &address.length) != 0) {
    return absl::UnavailableError(
        absl::StrCat("getsockname: ", std::strerror(errno)));
  }
  return address;
}

absl::StatusOr<UniqueFd> BeginConnect(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family,
                     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return Failed("socket for", address, errno);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage),
              address.length) != 0 &&
      errno != EINPROGRESS && errno != EINTR) {
    return Failed("connect to", address, errno);
  }
  return fd;
}

absl::Status ConnectResult(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
    error = errno;
  }
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("connect: ", std::strerror(error)));
}

void SetControlOptions(int fd, Duration dead) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  const auto dead_s = static_cast<int>(
      std::chrono::duration_cast<std::chrono::seconds>(dead).count());
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::clamp(dead_s / 3, 1, 60));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::clamp(dead_s / 4, 1, 60));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  const auto dead_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(dead).count();
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(std::clamp<int64_t>(dead_ms, 1, 1 << 30)));
}

WakeEvent::WakeEvent() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void WakeEvent::Notify() {
  const uint64_t one = 1;
  // Full means that the other side will wake anyway.
  [[maybe_unused]] ssize_t written = write(fd_.get(), &one, sizeof(one));
}

void WakeEvent::Clear() {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t got = read(fd_.get(), &count, sizeof(count));
}

std::string OwnHostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "localhost";
  std::string host(name);
  for (char& c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' &&
        c != '-') {
      c = '_';
    }
  }
  return host.empty() ? "localhost" : host;
}

int PollTimeoutMs(TimePoint now, TimePoint until) {
  if (until <= now) return 0;
  const auto ms =
      std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  return static_cast<int>(std::min<int64_t>(ms, 60'000));
}

}  // namespace telegrad
