#include "tests/kvstore/simulation/virtual_network.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tests/kvstore/simulation/real_calls.h"
#include "tests/kvstore/simulation/virtual_world.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kAgainNs = 1'000'000;  // a socket was full

int FailWith(int error) {
  errno = error;
  return -1;
}

int PortIn(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof(v6));
    return ntohs(v6.sin6_port);
  }
  sockaddr_in v4{};
  std::memcpy(&v4, address, sizeof(v4));
  return ntohs(v4.sin_port);
}

}  // namespace

VirtualNetwork& VirtualNetwork::The() {
  static auto* const network =
      new VirtualNetwork(VirtualWorld::The()->random().NextU64());
  return *network;
}

void VirtualNetwork::SetLatency(Duration least, Duration most) {
  least_ns_ = std::chrono::nanoseconds(least).count();
  most_ns_ = std::chrono::nanoseconds(most).count();
}

void VirtualNetwork::Cut(int member, int other, int64_t until_ns) {
  cuts_[std::minmax(member, other)] = {.since_ns = VirtualWorld::The()->Now(),
                                       .until_ns = until_ns};
}

int64_t VirtualNetwork::CutUntil(const Connection& connection,
                                 int64_t now_ns) const {
  const auto found =
      cuts_.find(std::minmax(connection.members[0], connection.members[1]));
  return found == cuts_.end() ? now_ns : found->second.until_ns;
}

int64_t VirtualNetwork::CutSince(const Connection& connection,
                                 int64_t now_ns) const {
  const auto found =
      cuts_.find(std::minmax(connection.members[0], connection.members[1]));
  if (found == cuts_.end() || found->second.until_ns <= now_ns) return now_ns;
  return found->second.since_ns;
}

int VirtualNetwork::Socket(int type, int member) {
  const int fd = Real().socket(AF_UNIX, type, 0);
  if (fd >= 0) sockets_[fd] = {.member = member, .arrived = {}};
  return fd;
}

int VirtualNetwork::Bind(int fd, const sockaddr* address) {
  const int wanted = PortIn(address);
  if (wanted != 0 && listeners_.contains(wanted)) return FailWith(EADDRINUSE);
  sockets_[fd].port = wanted != 0 ? wanted : next_port_++;
  return 0;
}

int VirtualNetwork::Listen(int fd) {
  sockaddr_un own{};  // the kernel chooses an abstract name
  own.sun_family = AF_UNIX;
  if (Real().bind(fd, reinterpret_cast<sockaddr*>(&own),
                  sizeof(own.sun_family)) != 0 ||
      Real().listen(fd, 128) != 0) {
    return -1;
  }
  Socket_& socket = sockets_[fd];
  socket.listens = true;
  listeners_[socket.port] = fd;
  return 0;
}

// Both ends are connected at once, as the kernel of a stopped process does it.
int VirtualNetwork::Connect(int fd, const sockaddr* address) {
  const auto found = listeners_.find(PortIn(address));
  if (found == listeners_.end()) return FailWith(ECONNREFUSED);
  const int listener = found->second;
  sockaddr_un name{};
  socklen_t length = sizeof(name);
  if (Real().getsockname(listener, reinterpret_cast<sockaddr*>(&name),
                         &length) != 0) {
    return -1;
  }
  Connection connection;
  connection.ends[1] = Real().socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (Real().connect(connection.ends[1], reinterpret_cast<sockaddr*>(&name),
                     length) != 0) {
    Real().close(connection.ends[1]);
    return FailWith(ECONNREFUSED);
  }
  const int door = Real().socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_un own{};
  own.sun_family = AF_UNIX;
  length = sizeof(name);
  if (Real().bind(door, reinterpret_cast<sockaddr*>(&own),
                  sizeof(own.sun_family)) != 0 ||
      Real().listen(door, 1) != 0 ||
      Real().getsockname(door, reinterpret_cast<sockaddr*>(&name), &length) !=
          0 ||
      Real().connect(fd, reinterpret_cast<sockaddr*>(&name), length) != 0) {
    return -1;
  }
  connection.ends[0] = Real().accept4(door, nullptr, nullptr, SOCK_NONBLOCK);
  Real().close(door);
  connection.members[0] = sockets_[fd].member;
  connection.members[1] = sockets_[listener].member;
  connection.number = next_number_++;
  connections_.push_back(std::move(connection));
  sockets_[fd].connection = &connections_.back();
  sockets_[fd].port = next_port_++;
  sockets_[listener].arrived.push_back(&connections_.back());
  return 0;
}

int VirtualNetwork::Accept(int fd, int flags, int member) {
  const int accepted = Real().accept4(fd, nullptr, nullptr, flags);
  if (accepted < 0) return accepted;
  Socket_& listener = sockets_[fd];
  Socket_& socket = sockets_[accepted];
  socket = {.member = member, .port = listener.port, .arrived = {}};
  if (!listener.arrived.empty()) {
    socket.connection = listener.arrived.front();
    socket.end = 1;
    listener.arrived.pop_front();
  }
  return accepted;
}

int VirtualNetwork::Name(int fd, sockaddr* address, socklen_t* length) const {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  own.sin_port = htons(static_cast<uint16_t>(sockets_.at(fd).port));
  std::memcpy(address, &own, std::min<size_t>(*length, sizeof(own)));
  *length = sizeof(own);
  return 0;
}

// What the kernel knows of a path that brings no answers.
int VirtualNetwork::Info(int fd, void* info, socklen_t size,
                         int64_t now_ns) const {
  tcp_info known{};
  const Connection* connection = sockets_.at(fd).connection;
  if (connection != nullptr) {
    const int64_t since = CutSince(*connection, now_ns);
    known.tcpi_unacked = since < now_ns ? 1 : 0;
    known.tcpi_retransmits = since < now_ns ? 1 : 0;
    known.tcpi_last_ack_recv =
        static_cast<uint32_t>((now_ns - since) / 1'000'000);
  }
  std::memcpy(info, &known, std::min<size_t>(size, sizeof(known)));
  return 0;
}

void VirtualNetwork::Close(int fd) {
  const auto found = sockets_.find(fd);
  if (found == sockets_.end()) return;
  if (found->second.listens) listeners_.erase(found->second.port);
  for (Connection* each : found->second.arrived) {
    each->is_held[1] = false;
    Shut(*each, 1);
  }
  Touch(fd);
  if (Connection* const connection = found->second.connection) {
    connection->is_held[found->second.end] = false;
  }
  sockets_.erase(found);
}

void VirtualNetwork::Touch(int fd) {
  const auto found = sockets_.find(fd);
  if (found == sockets_.end() || found->second.connection == nullptr) return;
  touched_[found->second.connection->number] = found->second.connection;
}

// Nothing more passes to or from that end.
void VirtualNetwork::Shut(Connection& connection, int end) {
  if (!connection.has_ended[end]) {
    Put(connection, end, "", VirtualWorld::The()->Now());
  }
  connection.has_ended[end] = true;
  connection.was_shut[end] = true;
  connection.way[1 - end].clear();
}

void VirtualNetwork::Kill(int member, int64_t now_ns, bool is_silent) {
  if (is_silent) {
    for (int other = 0; other < VirtualWorld::The()->num_members(); ++other) {
      Cut(member, other, INT64_MAX);
    }
    return;
  }
  std::erase_if(listeners_, [&](const auto& each) {
    return sockets_[each.second].member == member;
  });
  for (Connection& connection : connections_) {
    for (const int end : {0, 1}) {
      if (connection.members[end] != member) continue;
      connection.is_held[end] = false;
      // The kernel sends what it was given before the process died, or not all.
      const bool brings_all = random_.NextBelow(2) == 0;
      if (brings_all) Take(connection, end, now_ns);
      Shut(connection, end);
    }
  }
}

void VirtualNetwork::Put(Connection& connection, int from, std::string text,
                         int64_t now_ns) {
  if (connection.was_shut[1 - from]) return;  // nobody hears it
  if (!text.empty() && tampered_.erase(std::minmax(
                           connection.members[0], connection.members[1])) > 0) {
    const uint64_t bit = random_.NextBelow(8 * text.size());
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
  const auto span = static_cast<uint64_t>(most_ns_ - least_ns_ + 1);
  int64_t& last = connection.last_due_ns[from];
  last = std::max(
      last, now_ns + least_ns_ + static_cast<int64_t>(random_.NextBelow(span)));
  connection.way[from].push_back({.due_ns = last, .text = std::move(text)});
  busy_[connection.number] = &connection;
}

void VirtualNetwork::Take(Connection& connection, int from, int64_t now_ns) {
  std::array<char, 65536> bytes;
  while (!connection.has_ended[from]) {
    const ssize_t count =
        recv(connection.ends[from], bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      connection.has_ended[from] = true;
      Put(connection, from, "", now_ns);
      return;
    }
    Put(connection, from, {bytes.data(), static_cast<size_t>(count)}, now_ns);
  }
}

void VirtualNetwork::Give(Connection& connection, int from, int64_t now_ns) {
  const int to = 1 - from;
  auto& way = connection.way[from];
  if (way.empty() || CutUntil(connection, now_ns) > now_ns) return;
  while (!way.empty() && way.front().due_ns <= now_ns) {
    Bytes& first = way.front();
    if (first.text.empty()) {
      if (!connection.was_shut[to]) shutdown(connection.ends[to], SHUT_WR);
      connection.was_shut[to] = true;
      way.clear();
      return;
    }
    const ssize_t sent = Real().send(
        connection.ends[to], first.text.data() + first.num_given,
        first.text.size() - first.num_given, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      first.due_ns = now_ns + kAgainNs;
      return;
    }
    if (sent < 0) {  // there is no one any more: as a reset
      Shut(connection, to);
      return;
    }
    first.num_given += static_cast<size_t>(sent);
    if (first.num_given == first.text.size()) way.pop_front();
  }
}

void VirtualNetwork::Move(int64_t now_ns) {
  for (const auto& [number, connection] : std::exchange(touched_, {})) {
    for (const int from : {0, 1}) Take(*connection, from, now_ns);
    EndIfOver(*connection);
  }
  for (auto each = busy_.begin(); each != busy_.end();) {
    Connection& connection = *each->second;
    for (const int from : {0, 1}) Give(connection, from, now_ns);
    each = connection.is_idle() ? busy_.erase(each) : std::next(each);
    EndIfOver(connection);
  }
}

void VirtualNetwork::EndIfOver(Connection& connection) {
  if (!connection.is_over()) return;
  for (const int end : connection.ends) Real().close(end);
  touched_.erase(connection.number);
  busy_.erase(connection.number);
  connections_.remove_if(
      [&](const Connection& each) { return &each == &connection; });
}

int64_t VirtualNetwork::NextDue(int64_t now_ns) const {
  int64_t due = INT64_MAX;
  for (const auto& [number, connection] : busy_) {
    const int64_t not_before = CutUntil(*connection, now_ns);
    for (const auto& way : connection->way) {
      if (way.empty()) continue;
      due = std::min(due, std::max(way.front().due_ns, not_before));
    }
  }
  return due;
}

}  // namespace telegrad::testing
