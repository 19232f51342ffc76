#include "transport/tcp/tcp_context.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/tcp/progress.h"
#include "transport/tcp/tcp_transport.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeTcpTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return tcp::TcpContext::Make(options, handler);
}

namespace tcp {
namespace {

// From connect or accept to the peer's hello.
constexpr Duration kGreetGrace = std::chrono::seconds(10);
// Strangers who have connected and said nothing yet.
constexpr size_t kMaxGreeting = 1024;
constexpr size_t kStagingBytes = size_t{64} << 10;

// Keep-alives find a machine that is gone while nothing is under way. There is
// no limit for data that is not taken: a peer may be busy for long.
void SetDataOptions(int fd) {
  const auto set = [fd](int level, int option, int value) {
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
      LogWarning("transport tcp: setsockopt: ", std::strerror(errno));
    }
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

TcpContext::TcpContext(const TransportOptions& options,
                       TransportHandler* handler)
    : options_(options), handler_(handler), staging_(kStagingBytes) {}

absl::StatusOr<std::unique_ptr<TransportContext>> TcpContext::Make(
    const TransportOptions& options, TransportHandler* handler) {
  std::unique_ptr<TcpContext> context(new TcpContext(options, handler));
  RETURN_IF_ERROR(context->Init());
  return context;
}

absl::Status TcpContext::Init() {
  if (!options_.tls.empty() && options_.tls != "tcp") {
    return absl::InvalidArgumentError(absl::StrCat(
        "transport tcp: tls \"", options_.tls, "\" is none of tcp, \"\""));
  }
  RETURN_IF_ERROR(ParseIp(options_.bind_address, 0).status());
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open() || !wake_event_.is_open()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("eventfd or epoll: ", std::strerror(errno)));
  }
  return Watch(wake_event_.fd(), kWakeKey, EPOLLIN);
}

absl::Status TcpContext::Watch(int fd, uint64_t key, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("epoll_ctl: ", std::strerror(errno)));
}

TransportInfo TcpContext::info() const {
  return {"tcp",
          absl::StrCat("sockets of the kernel at ", options_.bind_address)};
}

absl::StatusOr<std::string> TcpContext::Listen() {
  if (listener_.is_open()) {
    return absl::FailedPreconditionError("this context listens already");
  }
  ASSIGN_OR_RETURN(const SocketAddress address,
                   ParseIp(options_.bind_address, 0));
  ASSIGN_OR_RETURN(UniqueFd listener, ListenOn(address));
  ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(listener.get()));
  // Edge-triggered: no spinning while there are no descriptors to accept with.
  RETURN_IF_ERROR(Watch(listener.get(), kListenerKey, EPOLLIN | EPOLLET));
  listener_ = std::move(listener);
  return ToString(bound);
}

absl::StatusOr<EndpointId> TcpContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const HostPort peer, ParseHostPort(address));
  ASSIGN_OR_RETURN(const SocketAddress target, ParseIp(peer.host, peer.port));
  absl::StatusOr<UniqueFd> socket = BeginConnect(target);
  absl::Status refused;
  if (!socket.ok()) {  // heard in Progress: until then the endpoint is open
    refused = socket.status();
    socket = UniqueFd();
  }
  ASSIGN_OR_RETURN(Connection * connection, Add(*std::move(socket)));
  connection->is_announced = true;
  connection->is_connecting = true;
  Outgoing hello;
  PackHello(hello.head.data());
  hello.head_bytes = kRecordBytes;
  Enqueue(*connection, std::move(hello));
  if (!refused.ok()) {
    Fail(*connection, absl::UnavailableError(refused.message()));
  }
  return connection->id;
}

absl::StatusOr<Connection*> TcpContext::Add(UniqueFd socket) {
  auto connection = std::make_unique<Connection>();
  connection->id = next_id_++;
  connection->socket = std::move(socket);
  connection->greet_by = Clock::now() + kGreetGrace;
  if (connection->socket.is_open()) {
    SetDataOptions(connection->socket.get());
    RETURN_IF_ERROR(Watch(connection->socket.get(),
                          kFirstConnectionKey + connection->id,
                          EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP));
  }
  Connection* const added = connection.get();
  connections_[added->id] = std::move(connection);
  greeting_.push_back(added->id);
  return added;
}

Connection* TcpContext::Find(EndpointId id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second.get();
}

void TcpContext::Accept() {
  while (true) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr,
                            SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        LogWarning("transport tcp: accept: ", std::strerror(errno));
      }
      return;
    }
    if (greeting_.size() >= kMaxGreeting) continue;  // hangs up
    const absl::StatusOr<Connection*> added = Add(std::move(socket));
    if (!added.ok()) {
      LogWarning("transport tcp: accept: ", added.status().message());
      continue;
    }
    (*added)->is_accepted = true;
  }
}

absl::Status TcpContext::RegisterMemory(Bytes memory) {
  if (memory.device.kind == DeviceKind::kCpu) return absl::OkStatus();
  return absl::UnimplementedError("transport tcp takes host memory only");
}

}  // namespace tcp
}  // namespace telegrad
