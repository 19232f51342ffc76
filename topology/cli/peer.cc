#include "topology/cli/peer.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/socket.h"
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

absl::Status WaitFor(int fd, short events, TimePoint until) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  for (TimePoint now = Clock::now(); now < until; now = Clock::now()) {
    if (poll(&entry, 1, PollTimeoutMs(now, until)) > 0) return absl::OkStatus();
  }
  return absl::DeadlineExceededError("it took too long");
}

class Connection {
 public:
  explicit Connection(UniqueFd fd) : fd_(std::move(fd)) {
    SetControlOptions(fd_.get(), kPeerTime);
  }

  absl::Status Send(const char* bytes, size_t size, TimePoint until) const {
    while (size > 0) {
      const ssize_t n =
          send(fd_.get(), bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
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
      const ssize_t n = recv(fd_.get(), bytes, size, MSG_DONTWAIT);
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
    return WaitFor(fd_.get(), events, until);
  }

 private:
  UniqueFd fd_;
};

absl::StatusOr<std::vector<SocketAddress>> AddressesOf(
    const std::string& address) {
  ASSIGN_OR_RETURN(const HostPort to, ParseHostPort(address, 0));
  return Resolve(to.host, to.port);
}

absl::StatusOr<Connection> Connect(const SocketAddress& to, TimePoint until) {
  ASSIGN_OR_RETURN(UniqueFd fd, BeginConnect(to));
  RETURN_IF_ERROR(WaitFor(fd.get(), POLLOUT, until));
  RETURN_IF_ERROR(ConnectResult(fd.get()));
  return Connection(std::move(fd));
}

absl::Status SendMachine(const Connection& connection, absl::string_view mine,
                         TimePoint until) {
  std::string hello(kMagic, kMagicBytes);
  std::byte length[4];
  StoreLittleEndian(length, static_cast<uint32_t>(mine.size()));
  hello.append(reinterpret_cast<const char*>(length), sizeof(length));
  hello.append(mine.data(), mine.size());
  return connection.Send(hello.data(), hello.size(), until);
}

absl::StatusOr<std::string> ReceiveMachine(const Connection& connection,
                                           TimePoint until) {
  char head[kMagicBytes + 4];
  RETURN_IF_ERROR(connection.Receive(head, sizeof(head), until));
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
  RETURN_IF_ERROR(connection.Receive(machine.data(), size, until));
  return machine;
}

absl::StatusOr<double> Request(const Connection& connection, char request,
                               size_t num_bytes, TimePoint until) {
  const TimePoint start = Clock::now();
  RETURN_IF_ERROR(connection.Send(&request, 1, until));
  static const std::vector<char> kZeros(size_t{1} << 20);
  for (size_t sent = 0; sent < num_bytes; sent += kZeros.size()) {
    RETURN_IF_ERROR(connection.Send(
        kZeros.data(), std::min(kZeros.size(), num_bytes - sent), until));
  }
  char answer = 0;
  RETURN_IF_ERROR(connection.Receive(&answer, 1, until));
  return SecondsSince(start);
}

absl::Status Measure(const Connection& connection,
                     absl::string_view machine_json, TimePoint until,
                     PeerResult& result) {
  RETURN_IF_ERROR(SendMachine(connection, machine_json, until));
  ASSIGN_OR_RETURN(result.machine_json, ReceiveMachine(connection, until));
  std::vector<double> pings;
  for (int i = 0; i < kPings; ++i) {
    ASSIGN_OR_RETURN(const double seconds,
                     Request(connection, kPing, 0, until));
    pings.push_back(seconds);
  }
  std::nth_element(pings.begin(), pings.begin() + kPings / 2, pings.end());
  result.round_trip_us = 1e6 * pings[kPings / 2];
  ASSIGN_OR_RETURN(const double seconds,
                   Request(connection, kBulk, kProbeBytes, until));
  result.bytes_per_s = static_cast<double>(kProbeBytes) / seconds;
  return connection.Send(&kEnd, 1, until);
}

absl::Status Answer(const Connection& connection, TimePoint until) {
  std::vector<char> bulk(size_t{1} << 20);
  for (int i = 0; i < kMaxRequests; ++i) {
    char request = 0;
    RETURN_IF_ERROR(connection.Receive(&request, 1, until));
    if (request == kEnd) return absl::OkStatus();
    if (request != kPing && request != kBulk) {
      return absl::DataLossError("an unknown request");
    }
    size_t left = request == kBulk ? kProbeBytes : 0;
    while (left > 0) {
      const size_t part = std::min(left, bulk.size());
      RETURN_IF_ERROR(connection.Receive(bulk.data(), part, until));
      left -= part;
    }
    RETURN_IF_ERROR(connection.Send(&request, 1, until));
  }
  return absl::DataLossError("too many requests");
}

}  // namespace

absl::Status CheckPeerAddress(const std::string& address) {
  return ParseHostPort(address, 0).status();
}

absl::StatusOr<PeerResult> ProbePeer(const std::string& address,
                                     absl::string_view machine_json,
                                     Duration timeout) {
  const TimePoint until = Clock::now() + timeout;
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   AddressesOf(address));
  absl::Status status;
  auto left = static_cast<int>(addresses.size());
  for (const SocketAddress& to : addresses) {
    PeerResult result;
    const TimePoint start = Clock::now();
    // One that does not answer leaves their part of the time to the others.
    const absl::StatusOr<Connection> connection =
        Connect(to, start + (until - start) / left--);
    status = connection.status();
    if (!status.ok()) continue;
    result.connect_us = 1e6 * SecondsSince(start);
    status = Measure(*connection, machine_json, until, result);
    if (status.ok()) return result;
  }
  return absl::Status(status.code(),
                      absl::StrCat(address, ": ", status.message()));
}

absl::StatusOr<PeerServer> PeerServer::Listen(const std::string& address) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   AddressesOf(address));
  PeerServer server;
  ASSIGN_OR_RETURN(server.fd_, ListenOn(addresses.front()));
  ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(server.fd_.get()));
  server.address_ = ToString(bound);
  return server;
}

absl::StatusOr<std::string> PeerServer::ServeOne(absl::string_view machine_json,
                                                 TimePoint until) {
  if (!WaitFor(fd_.get(), POLLIN, until).ok()) {
    return absl::DeadlineExceededError(
        absl::StrCat(address_, ": no peer came in time"));
  }
  UniqueFd fd(
      accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.is_open()) return absl::UnavailableError(std::strerror(errno));
  const Connection connection(std::move(fd));
  const TimePoint peer_until = std::min(until, Clock::now() + kPeerTime);
  ASSIGN_OR_RETURN(std::string machine, ReceiveMachine(connection, peer_until));
  RETURN_IF_ERROR(SendMachine(connection, machine_json, peer_until));
  RETURN_IF_ERROR(Answer(connection, peer_until));
  return machine;
}

}  // namespace telegrad::topo
