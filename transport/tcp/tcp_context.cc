#include "transport/tcp/tcp_context.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"
#include "transport/tcp/tcp_transport.h"

namespace telegrad {

absl::Status CheckTcpTransport(const TransportOptions& options) {
  if (!options.tls.empty() && options.tls != "tcp") {
    return absl::InvalidArgumentError(absl::StrCat(
        "transport tcp: tls \"", options.tls, "\" is none of tcp, \"\""));
  }
  return tcp::CheckCongestion(options.congestion);
}

absl::StatusOr<std::unique_ptr<TransportContext>> MakeTcpTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return tcp::TcpContext::Make(options, handler);
}

namespace tcp {
namespace {

constexpr size_t kStagingBytes = size_t{64} << 10;
// Bytes that wait in the kernel to be sent. More is written into memory long
// before the card, or the receiver next door, reads it, and has left the cache
// then.
constexpr int kUnsentBytes = 64 << 10;
// Each of so few is asked, which is faster than to ask which one to ask.
constexpr size_t kFewConnections = 4;
constexpr unsigned kPollsPerSocketPoll = 16;

// There is no limit for data that is not taken: a peer may be busy for long.
void SetDataOptions(int fd) {
  const auto set = [fd](int level, int option, int value) {
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
      LogWarning("transport tcp: setsockopt: ", std::strerror(errno));
    }
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  KeepAlive(fd);
}

// Whether a socket has no place for what is to be sent: only PollSockets hears
// when it has, and who waits leaves the link idle.
bool IsAnyFull(const EndpointTable<Connection>& connections) {
  return std::any_of(
      connections.all().begin(), connections.all().end(), [](const auto& of) {
        return !of.second->is_writable && !of.second->queue.empty();
      });
}

std::string DescribeSameHost(const EndpointTable<Connection>& connections) {
  size_t num_local = 0, num_read = 0;
  for (const auto& [id, connection] : connections.all()) {
    if (!connection->is_local()) continue;
    ++num_local;
    if (connection->memory->reads_peer()) ++num_read;
  }
  if (num_local == 0) return "";
  return absl::StrCat(", ", num_local,
                      " endpoints on this machine without TCP, ", num_read,
                      " of them by memory");
}

}  // namespace

TcpContext::TcpContext(const TransportOptions& options,
                       TransportHandler* handler)
    : options_(options),
      handler_(handler),
      congestion_(options.congestion),
      mark_(MakeMark()),
      staging_(kStagingBytes) {}

absl::StatusOr<std::unique_ptr<TransportContext>> TcpContext::Make(
    const TransportOptions& options, TransportHandler* handler) {
  std::unique_ptr<TcpContext> context(new TcpContext(options, handler));
  RETURN_IF_ERROR(context->listeners_.Init(options));
  RETURN_IF_ERROR(context->poller_.Open());
  return context;
}

TransportInfo TcpContext::info() const {
  return {"tcp",
          absl::StrCat("sockets of the kernel", congestion_.Describe(), " at ",
                       absl::StrJoin(listeners_.ips(), " and "),
                       options_.tls.empty() ? DescribeSameHost(connections_)
                                            : ", TCP only")};
}

bool TcpContext::IsInMemory(EndpointId id) const {
  const Connection* const connection = connections_.Find(id);
  return connection != nullptr && connection->is_local();
}

absl::StatusOr<std::string> TcpContext::Listen() {
  return listeners_.Listen(poller_);
}

absl::StatusOr<EndpointId> TcpContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const SocketAddress target, ParseIpPort(address));
  PeerSocket peer;
  if (options_.tls.empty()) peer = ReachOnSameHost(address);
  absl::Status refused;  // heard in Progress: until then the endpoint is open
  if (!peer.socket.is_open()) {
    absl::StatusOr<UniqueFd> begun = BeginConnect(target);
    refused = begun.status();
    if (begun.ok()) peer.socket = *std::move(begun);
  }
  ASSIGN_OR_RETURN(Connection * connection,
                   Add(std::move(peer), /*is_accepted=*/false));
  connection->is_announced = true;
  connection->is_connecting = true;
  SendHello(*connection);
  if (!refused.ok()) {
    connections_.Refuse(*connection, absl::UnavailableError(refused.message()));
  }
  return connection->id;
}

absl::StatusOr<Connection*> TcpContext::Add(PeerSocket peer, bool is_accepted) {
  auto connection = std::make_unique<Connection>(
      std::move(peer), MaxHeaderBytes(options_),
      Proof(options_.key, /*is_client=*/!is_accepted));
  connection->is_accepted = is_accepted;
  connection->id = connections_.NewId();
  connection->is_accepted = is_accepted;
  if (connection->socket.is_open()) {
    if (!connection->is_local()) SetDataOptions(connection->socket.get());
    RETURN_IF_ERROR(poller_.Watch(connection->socket.get(),
                                  Listeners::kFirstOther + connection->id,
                                  EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP));
  }
  return connections_.Add(std::move(connection));
}

void TcpContext::Accept(uint64_t key) {
  while (true) {
    PeerSocket peer = listeners_.Accept(key);
    if (!peer.socket.is_open()) return;
    if (!connections_.MakeRoom()) continue;  // hangs up
    const absl::StatusOr<Connection*> added =
        Add(std::move(peer), /*is_accepted=*/true);
    if (!added.ok()) {
      LogWarning("transport tcp: accept: ", added.status().message());
      continue;
    }
    const Connection& connection = **added;
    if (!connection.is_local()) congestion_.Choose(connection.socket.get());
  }
}

absl::Status TcpContext::Send(EndpointId to, ConstBytes header,
                              ConstBytes payload, SendDone done) {
  Connection* const connection = connections_.Find(to);
  if (connection == nullptr || connection->state != State::kOpen) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, MaxHeaderBytes(options_)));
  RETURN_IF_ERROR(CheckOnHost("tcp", payload.device));
  const bool is_exposed =
      connection->is_local() && connection->memory->IsExposable(payload);
  Enqueue(*connection,
          MakeMessage(header, payload, is_exposed, std::move(done)));
  return absl::OkStatus();
}

void TcpContext::SendHello(Connection& connection) {
  std::array<std::byte, kRecordBytes> hello;
  PackRecord(kHelloRecord, hello.data());
  connection.opening.assign(reinterpret_cast<const char*>(hello.data()),
                            hello.size());
  connection.opening += connection.proof.Begin();
  if (connection.is_local()) Enqueue(connection, MakeOffer(mark_));
}

// Written at once, unless Progress is known to be called next; from within it
// later, together with whatever else is sent until then.
void TcpContext::Enqueue(Connection& connection, Outgoing message) {
  connection.queue.Add(std::move(message));
  if (!connection.is_writable) return;
  const bool waits = is_progressing_ || options_.sends_wait;
  if (!waits && connection.queue.size() == 1) Write(connection);
  turns_.Add(connection);
}

void TcpContext::Write(Connection& connection) {
  if (!connection.is_writable || connection.state == State::kFailed) return;
  if (!connection.WriteOpening(&num_moved_)) return;
  const SendQueue::Written written =
      connection.queue.Write(connection.socket.get(), kTurnBytes, done_);
  num_moved_ += written.bytes;
  connection.is_writable = !written.is_full;
  // What is broken says so after what has arrived.
  if (written.is_broken) connection.is_readable = connection.is_ending = true;
  if (connection.state == State::kClosing && connection.is_writable &&
      connection.queue.empty()) {
    (void)shutdown(connection.socket.get(), SHUT_WR);  // it may be gone
    connection.is_writable = false;
  }
}

// An orderly end begins with a goodbye behind all messages; a connection that
// ends without is a lost peer.
void TcpContext::Close(EndpointId id) {
  Connection* const connection = connections_.Find(id);
  if (connection == nullptr || connection->state != State::kOpen ||
      !connection->is_announced) {
    return;
  }
  connections_.BeginClosing(*connection, State::kClosing,
                            absl::CancelledError("closed by this side"));
  Enqueue(*connection, MakeControl({Kind::kGoodbye}));
}

void TcpContext::Fail(Connection& connection, absl::Status why) {
  connections_.BeginClosing(connection, State::kFailed, std::move(why));
}

void TcpContext::FailProtocol(Connection& connection, absl::string_view what) {
  Fail(connection, absl::UnavailableError(
                       absl::StrCat("the peer breaks the protocol: ", what)));
}

void TcpContext::Cut(Connection& cut) {
  const std::unique_ptr<Connection> removed = connections_.Remove(cut.id);
  Connection& connection = *removed;
  // A child that has inherited the socket loses it, too: before `done`, after
  // which the memory that the peer may be reading is used again.
  if (connection.is_local()) (void)shutdown(connection.socket.get(), SHUT_RDWR);
  connection.socket.Close();
  // Who hears a goodbye has copied all before it.
  const bool is_taken =
      connection.state == State::kClosing && connection.has_ended;
  connection.queue.End(is_taken ? absl::OkStatus() : connection.why,
                       connection.why, done_);
  CallDone();
  if (!connection.is_announced) return;
  ++num_events_;
  handler_->OnClosed(connection.id, connection.why);
}

void TcpContext::PollSockets() {
  poller_.Poll([this](uint64_t key, uint32_t events) {
    if (key < Listeners::kFirstOther) return Accept(key);
    const auto id = static_cast<EndpointId>(key - Listeners::kFirstOther);
    if (Connection* connection = connections_.Find(id))
      HandleSocket(*connection, events);
  });
}

void TcpContext::HandleSocket(Connection& connection, uint32_t events) {
  if (connection.is_connecting) {
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
    const absl::Status connected = ConnectResult(connection.socket.get());
    if (!connected.ok()) {
      return Fail(connection, absl::UnavailableError(connected.message()));
    }
    connection.is_connecting = false;
    if (!connection.is_local()) congestion_.Choose(connection.socket.get());
  }
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    connection.is_ending = connection.is_readable = true;
  }
  if ((events & EPOLLIN) != 0) connection.is_readable = true;
  if ((events & EPOLLOUT) != 0) connection.is_writable = true;
  if (connection.has_work()) turns_.Add(connection);
}

void TcpContext::Work(bool reads) {
  turns_.Take([this](EndpointId id) { return connections_.Find(id); },
              [this, reads](Connection& connection) {
                Write(connection);
                if (reads) Read(connection);
                if (connection.has_work()) turns_.Add(connection);
              });
}

// What handlers and `done` have sent goes before this returns.
bool TcpContext::HandleEvents(bool is_complete) {
  is_progressing_ = true;
  num_events_ = num_moved_ = 0;
  if (is_complete || connections_.size() > kFewConnections ||
      ++num_polls_ % kPollsPerSocketPoll == 0 || IsAnyFull(connections_)) {
    PollSockets();
  } else {
    for (const auto& [id, connection] : connections_.all()) {
      if (connection->is_connecting || connection->has_ended) continue;
      connection->is_readable = true;
      turns_.Add(*connection);
    }
  }
  Work(/*reads=*/true);
  CallDone();
  if (!turns_.empty()) Work(/*reads=*/false);
  CallDone();
  connections_.Advance(
      State::kFailed,
      [](const Connection& connection) { return connection.is_over(); },
      [this](Connection& connection) { Cut(connection); });
  is_progressing_ = false;
  return num_events_ > 0;
}

bool TcpContext::Progress(TimePoint deadline) {
  TimePoint now = Clock::now();
  silence_.Look(now, connections_);
  TimePoint poll_until = now + options_.poll;
  bool has_slept = false;
  while (true) {
    if (HandleEvents(/*is_complete=*/has_slept || now >= deadline)) return true;
    if (poller_.TakeWake()) return false;
    if (now >= deadline) return false;
    // Whoever else wants this core computes what we wait for.
    if (num_moved_ == 0) sched_yield();
    now = Clock::now();
    if (num_moved_ > 0) poll_until = now + options_.poll;  // parts of messages
    has_slept = now >= poll_until && turns_.empty() && done_.empty();
    if (has_slept) {
      poller_.Sleep(
          std::min({deadline, connections_.NextTimer(), silence_.next_look()}));
      now = Clock::now();
      silence_.Look(now, connections_);
    }
  }
}

}  // namespace tcp
}  // namespace telegrad
