#include "topology/cli/peer.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/endian.h"
#include "base/status_macros.h"

namespace telegrad::topo {
namespace {

// The prober sends this and its machine (length u32, JSON); the server answers
// with the same. Then the prober sends requests of one byte: kPing is answered
// by one byte, kBulk is followed by kProbeBytes bytes and answered by one byte,
// kEnd ends.
constexpr char kMagic[] = "TGTOPO1\n";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr char kPing = 'P';
constexpr char kBulk = 'B';
constexpr char kEnd = 'E';
constexpr int kPings = 51;
constexpr int kMaxRequests = 1000;
constexpr Duration kPeerTime = std::chrono::seconds(30);

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

  absl::Status Send(const char* bytes, size_t size, TimePoint until) const {
    while (size > 0) {
      const ssize_t n = send(fd_, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        bytes += n;
        size -= static_cast<size_t>(n);
      } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        return absl::UnavailableError(std::strerror(errno));
      } else {
        RETURN_IF_ERROR(Wait(POLLOUT, until));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Receive(char* bytes, size_t size, TimePoint until) const {
    while (size > 0) {
      const ssize_t n = recv(fd_, bytes, size, MSG_DONTWAIT);
      if (n > 0) {
        bytes += n;
        size -= static_cast<size_t>(n);
      } else if (n == 0) {
        return absl::UnavailableError("the peer closed the connection");
      } else if (errno != EAGAIN && errno != EINTR) {
        return absl::UnavailableError(std::strerror(errno));
      } else {
        RETURN_IF_ERROR(Wait(POLLIN, until));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Wait(short events, TimePoint until) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          until - Clock::now())
                          .count();
    pollfd entry{.fd = fd_, .events = events, .revents = 0};
    const int timeout_ms =
        static_cast<int>(std::clamp<int64_t>(left + 1, 0, 1000 * 1000));
    if (left <= 0 || poll(&entry, 1, timeout_ms) == 0) {
      return absl::DeadlineExceededError("it took too long");
    }
    return absl::OkStatus();
  }

 private:
  int fd_;
};

absl::Status SplitAddress(const std::string& address, std::string& host,
                          std::string& port) {
  const size_t colon = address.rfind(':');
  int number = 0;
  if (colon != std::string::npos) {
    host = address.substr(0, colon);
    port = address.substr(colon + 1);
    if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    if (!host.empty() && absl::SimpleAtoi(port, &number) && number >= 0 &&
        number <= 65535) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", address, "' is not HOST:PORT"));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
absl::StatusOr<Addresses> Resolve(const std::string& address, bool is_server) {
  std::string host;
  std::string port;
  RETURN_IF_ERROR(SplitAddress(address, host, port));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = is_server ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::NotFoundError(
        absl::StrCat(address, ": ", gai_strerror(error)));
  }
  return Addresses(found, &freeaddrinfo);
}

absl::StatusOr<Socket> Connect(const addrinfo& to, TimePoint until) {
  Socket socket(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return absl::UnavailableError(std::strerror(errno));
  if (connect(socket.fd(), to.ai_addr, to.ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    return absl::UnavailableError(std::strerror(errno));
  }
  RETURN_IF_ERROR(socket.Wait(POLLOUT, until));
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return absl::UnavailableError(std::strerror(error));
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

absl::Status SendMachine(const Socket& socket, absl::string_view mine,
                         TimePoint until) {
  std::string hello(kMagic, kMagicBytes);
  std::byte length[4];
  StoreLittleEndian(length, static_cast<uint32_t>(mine.size()));
  hello.append(reinterpret_cast<const char*>(length), sizeof(length));
  hello.append(mine.data(), mine.size());
  return socket.Send(hello.data(), hello.size(), until);
}

absl::StatusOr<std::string> ReceiveMachine(const Socket& socket,
                                           TimePoint until) {
  char head[kMagicBytes + 4];
  RETURN_IF_ERROR(socket.Receive(head, sizeof(head), until));
  if (std::memcmp(head, kMagic, kMagicBytes) != 0) {
    return absl::DataLossError("it is no telegrad-topo doctor --serve");
  }
  const auto size = LoadLittleEndian<uint32_t>(
      reinterpret_cast<const std::byte*>(head) + kMagicBytes);
  if (size > kMaxMachineBytes) {
    return absl::DataLossError(
        absl::StrCat("a machine of ", size, " bytes is too large"));
  }
  std::string machine(size, '\0');
  RETURN_IF_ERROR(socket.Receive(machine.data(), size, until));
  return machine;
}

absl::StatusOr<double> Request(const Socket& socket, char request,
                               size_t num_bytes, TimePoint until) {
  const TimePoint start = Clock::now();
  RETURN_IF_ERROR(socket.Send(&request, 1, until));
  static const std::vector<char> kZeros(size_t{1} << 20);
  for (size_t sent = 0; sent < num_bytes; sent += kZeros.size()) {
    RETURN_IF_ERROR(socket.Send(
        kZeros.data(), std::min(kZeros.size(), num_bytes - sent), until));
  }
  char answer = 0;
  RETURN_IF_ERROR(socket.Receive(&answer, 1, until));
  return SecondsSince(start);
}

absl::Status Measure(const Socket& socket, absl::string_view machine_json,
                     TimePoint until, PeerResult& result) {
  RETURN_IF_ERROR(SendMachine(socket, machine_json, until));
  ASSIGN_OR_RETURN(result.machine_json, ReceiveMachine(socket, until));
  std::vector<double> pings;
  for (int i = 0; i < kPings; ++i) {
    ASSIGN_OR_RETURN(const double seconds, Request(socket, kPing, 0, until));
    pings.push_back(seconds);
  }
  std::nth_element(pings.begin(), pings.begin() + kPings / 2, pings.end());
  result.round_trip_us = 1e6 * pings[kPings / 2];
  ASSIGN_OR_RETURN(const double seconds,
                   Request(socket, kBulk, kProbeBytes, until));
  result.bytes_per_s = static_cast<double>(kProbeBytes) / seconds;
  return socket.Send(&kEnd, 1, until);
}

absl::Status Answer(const Socket& socket, TimePoint until) {
  std::vector<char> bulk(size_t{1} << 20);
  for (int i = 0; i < kMaxRequests; ++i) {
    char request = 0;
    RETURN_IF_ERROR(socket.Receive(&request, 1, until));
    if (request == kEnd) return absl::OkStatus();
    if (request != kPing && request != kBulk) {
      return absl::DataLossError("an unknown request");
    }
    size_t left = request == kBulk ? kProbeBytes : 0;
    while (left > 0) {
      const size_t part = std::min(left, bulk.size());
      RETURN_IF_ERROR(socket.Receive(bulk.data(), part, until));
      left -= part;
    }
    RETURN_IF_ERROR(socket.Send(&request, 1, until));
  }
  return absl::DataLossError("too many requests");
}

}  // namespace

absl::StatusOr<PeerResult> ProbePeer(const std::string& address,
                                     absl::string_view machine_json,
                                     Duration timeout) {
  const TimePoint until = Clock::now() + timeout;
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address, false));
  absl::Status status;
  for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next) {
    PeerResult result;
    const TimePoint start = Clock::now();
    absl::StatusOr<Socket> socket = Connect(*to, until);
    status = socket.status();
    if (!status.ok()) continue;
    result.connect_us = 1e6 * SecondsSince(start);
    status = Measure(*socket, machine_json, until, result);
    if (status.ok()) return result;
  }
  return absl::Status(status.code(),
                      absl::StrCat(address, ": ", status.message()));
}

PeerServer::PeerServer(PeerServer&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), address_(std::move(other.address_)) {}

PeerServer::~PeerServer() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<PeerServer> PeerServer::Listen(const std::string& address) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address, true));
  PeerServer server;
  const addrinfo& to = *addresses;
  server.fd_ = ::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const int on = 1;
  setsockopt(server.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (server.fd_ < 0 || bind(server.fd_, to.ai_addr, to.ai_addrlen) != 0 ||
      listen(server.fd_, 16) != 0) {
    return absl::UnavailableError(
        absl::StrCat(address, ": ", std::strerror(errno)));
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getsockname(server.fd_, reinterpret_cast<sockaddr*>(&bound), &length) !=
          0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), length, host,
                  sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return absl::UnavailableError(absl::StrCat(address, ": no local address"));
  }
  const bool is_v6 = bound.ss_family == AF_INET6;
  server.address_ =
      absl::StrCat(is_v6 ? "[" : "", host, is_v6 ? "]" : "", ":", port);
  return server;
}

absl::StatusOr<std::string> PeerServer::ServeOne(absl::string_view machine_json,
                                                 TimePoint until) {
  pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                        until - Clock::now())
                        .count();
  if (left <= 0 ||
      poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1000000))) <=
          0) {
    return absl::DeadlineExceededError(
        absl::StrCat(address_, ": no peer came in time"));
  }
  Socket socket(accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK));
  if (socket.fd() < 0) return absl::UnavailableError(std::strerror(errno));
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const TimePoint peer_until = std::min(until, Clock::now() + kPeerTime);
  ASSIGN_OR_RETURN(std::string machine, ReceiveMachine(socket, peer_until));
  RETURN_IF_ERROR(SendMachine(socket, machine_json, peer_until));
  RETURN_IF_ERROR(Answer(socket, peer_until));
  return machine;
}

}  // namespace telegrad::topo
