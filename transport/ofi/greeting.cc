
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/ofi/ofi_context.h"
#include "transport/ofi/progress.h"

// The TCP connection of an endpoint: the hellos, then the sign of life.
namespace telegrad::ofi {
namespace {

// Unacknowledged keep-alives: the peer's machine is gone.
constexpr Duration kSilenceGrace = std::chrono::seconds(20);

}  // namespace

absl::StatusOr<Endpoint*> OfiContext::AddEndpoint(UniqueFd socket) {
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->id = endpoints_.NewId();
  if (getrandom(&endpoint->token, sizeof(endpoint->token), 0) !=
      sizeof(endpoint->token)) {
    return absl::InternalError("getrandom gave too little");
  }
  endpoint->socket = std::move(socket);
  endpoint->unsent = PackHello({.endpoint = endpoint->id,
                                .token = endpoint->token,
                                .fabric = fabric_->identity(),
                                .address = fabric_->address()});
  if (endpoint->socket.is_open()) {
    SetControlOptions(endpoint->socket.get(), kSilenceGrace);
    RETURN_IF_ERROR(poller_.Watch(endpoint->socket.get(),
                                  kFirstEndpointKey + endpoint->id,
                                  EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP));
  }
  return endpoints_.Add(std::move(endpoint));
}

void OfiContext::Accept() {
  while (true) {
    UniqueFd socket = acceptor_.Accept();
    if (!socket.is_open()) return;
    if (!endpoints_.MayGreet()) continue;  // hangs up
    const absl::StatusOr<Endpoint*> added = AddEndpoint(std::move(socket));
    if (!added.ok()) {
      LogWarning("transport ofi: accept: ", added.status().message());
      continue;
    }
    (*added)->is_accepted = true;
  }
}

void OfiContext::HandleSocket(Endpoint& endpoint, uint32_t events) {
  if (!endpoint.socket.is_open()) return;
  if (endpoint.is_connecting && (events & (EPOLLOUT | EPOLLERR)) != 0) {
    const absl::Status connected = ConnectResult(endpoint.socket.get());
    if (!connected.ok()) return Fail(endpoint, connected);
    endpoint.is_connecting = false;
  }
  if (endpoint.is_connecting) return;
  // Whoever has connected speaks first; a stranger learns nothing from us.
  if (!endpoint.is_accepted || endpoint.has_greeted) WriteHello(endpoint);
  ReadSocket(endpoint);
}

void OfiContext::WriteHello(Endpoint& endpoint) {
  while (!endpoint.unsent.empty()) {
    const ssize_t sent = send(endpoint.socket.get(), endpoint.unsent.data(),
                              endpoint.unsent.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // full, or broken, which reading says
    endpoint.unsent.erase(0, static_cast<size_t>(sent));
  }
}

void OfiContext::ReadSocket(Endpoint& endpoint) {
  std::array<char, kMaxHelloBytes + 1> chunk;
  while (!endpoint.has_ended && endpoint.state != State::kFailed) {
    const ssize_t got =
        recv(endpoint.socket.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      endpoint.has_ended = true;
      return HandleEnd(endpoint);
    }
    if (endpoint.has_greeted) {
      return FailProtocol(endpoint, "bytes after the hello");
    }
    endpoint.received.append(chunk.data(), static_cast<size_t>(got));
    ReceiveHello(endpoint);
  }
}

void OfiContext::ReceiveHello(Endpoint& endpoint) {
  auto hello = ParseHello(endpoint.received);
  if (!hello.ok()) return FailProtocol(endpoint, hello.status().message());
  if (!hello->has_value()) return;
  Hello& peer = **hello;
  if (peer.fabric != fabric_->identity()) {
    return Fail(endpoint, absl::UnavailableError(absl::StrCat(
                              "the peer's fabric \"", peer.fabric,
                              "\" is not ours, \"", fabric_->identity(),
                              "\": give both the same tls, and shm "
                              "only within one host")));
  }
  const absl::StatusOr<fi_addr_t> added = fabric_->AddPeer(peer.address);
  if (!added.ok()) return FailProtocol(endpoint, added.status().message());
  endpoint.has_greeted = true;
  endpoints_.HasGreeted(endpoint);
  endpoint.peer = *added;
  endpoint.peer_process = ShmProcess(peer.address);
  endpoint.is_fragile = fabric_->IsFragile(peer.address);
  endpoint.peer_address = std::move(peer.address);
  endpoint.peer_id = peer.endpoint;
  endpoint.peer_token = peer.token;
  endpoint.received = std::string();
  WriteHello(endpoint);
  StartPumping(endpoint);
  if (!endpoint.is_accepted) return;
  endpoint.is_announced = true;
  ++num_events_;
  handler_->OnAccept(endpoint.id);
}

bool OfiContext::HasPeerLeft(const Endpoint& endpoint) {
  char byte;
  return recv(endpoint.socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// What arrived before is heard first.
void OfiContext::HandleEnd(Endpoint& endpoint) {
  if (endpoint.state == State::kFailed) return;
  HandleCompletions();
  switch (endpoint.state) {
    case State::kOpen:
      return Fail(endpoint, absl::UnavailableError(
                                "the peer is gone: its connection has ended"));
    case State::kClosing:
    case State::kPeerClosed:
    case State::kFailed:
      return;  // AdvanceClosing sees has_ended
  }
}

}  // namespace telegrad::ofi
