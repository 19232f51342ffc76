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
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/network_device.h"
#include "base/status_macros.h"
#include "transport/tcp/congestion.h"
#include "transport/tcp/progress.h"
#include "transport/tcp/same_host.h"
#include "transport/tcp/tcp_transport.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeTcpTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return tcp::TcpContext::Make(options, handler);
}

namespace tcp {
namespace {

constexpr size_t kStagingBytes = size_t{64} << 10;
// That wait in the kernel to be sent. More is written into memory long before
// the card, or the receiver next door, reads it, and has left the cache then.
constexpr int kUnsentBytes = 64 << 10;

// Keep-alives find a machine that is gone while nothing is under way. There is
// no limit for data that is not taken: a peer may be busy for long.
void SetDataOptions(int fd) {
  const auto set = [fd](int level, int option, int value) {
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
      LogWarning("transport tcp: setsockopt: ", std::strerror(errno));
    }
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

TcpContext::TcpContext(const TransportOptions& options,
                       TransportHandler* handler)
    : options_(options),
      handler_(handler),
      mark_(MakeMark()),
      staging_(kStagingBytes) {}

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
  RETURN_IF_ERROR(CheckCongestion(options_.congestion));
  RETURN_IF_ERROR(ParseIp(options_.bind_address, 0).status());
  ips_ = {options_.bind_address};
  for (const std::string& rail : options_.rails) {
    ASSIGN_OR_RETURN(ips_.emplace_back(), AddressOrDevice(rail));
  }
  return poller_.Open();
}

TransportInfo TcpContext::info() const {
  return {"tcp",
          absl::StrCat("sockets of the kernel", DescribeCongestion(), " at ",
                       absl::StrJoin(ips_, " and "), DescribeSameHost())};
}

absl::StatusOr<std::string> TcpContext::Listen() {
  if (!acceptors_.empty()) {
    return absl::FailedPreconditionError("this context listens already");
  }
  std::vector<std::string> addresses;
  std::vector<Acceptor> acceptors(ips_.size());
  for (size_t i = 0; i < ips_.size(); ++i) {
    ASSIGN_OR_RETURN(addresses.emplace_back(),
                     acceptors[i].Listen(ips_[i], poller_, kListenerKey));
  }
  acceptors_ = std::move(acceptors);
  ListenOnSameHost(addresses[0]);
  return absl::StrJoin(addresses, ",");
}

absl::StatusOr<EndpointId> TcpContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const SocketAddress target, ParseIpPort(address));
  LocalPeer same_host_peer;
  absl::StatusOr<UniqueFd> socket = ReachOnSameHost(address, &same_host_peer);
  const bool is_local = socket->is_open();
  if (!is_local) socket = BeginConnect(target);
  absl::Status refused;
  if (!socket.ok()) {  // heard in Progress: until then the endpoint is open
    refused = socket.status();
    socket = UniqueFd();
  }
  ASSIGN_OR_RETURN(
      Connection * connection,
      Add(*std::move(socket), is_local ? &same_host_peer : nullptr));
  connection->is_announced = true;
  connection->is_connecting = true;
  SendHello(*connection);
  if (!refused.ok()) {
    Fail(*connection, absl::UnavailableError(refused.message()));
  }
  return connection->id;
}

// `same_host_peer`: null for TCP.
absl::StatusOr<Connection*> TcpContext::Add(UniqueFd socket,
                                            const LocalPeer* same_host_peer) {
  auto connection = std::make_unique<Connection>();
  connection->id = connections_.NewId();
  connection->socket = std::move(socket);
  if (same_host_peer != nullptr) {
    connection->is_local = true;
    connection->peer_process = same_host_peer->process;
  }
  if (connection->socket.is_open()) {
    if (!connection->is_local) SetDataOptions(connection->socket.get());
    RETURN_IF_ERROR(poller_.Watch(connection->socket.get(),
                                  kFirstConnectionKey + connection->id,
                                  EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP));
  }
  return connections_.Add(std::move(connection));
}

void TcpContext::Accept(Acceptor& acceptor) {
  while (true) {
    UniqueFd socket = acceptor.Accept();
    if (!socket.is_open()) return;
    if (!connections_.MayGreet()) continue;  // hangs up
    LocalPeer same_host_peer;
    const bool is_local = &acceptor == &same_host_;
    if (is_local && !IsTrusted(socket.get(), &same_host_peer)) continue;
    const absl::StatusOr<Connection*> added =
        Add(std::move(socket), is_local ? &same_host_peer : nullptr);
    if (!added.ok()) {
      LogWarning("transport tcp: accept: ", added.status().message());
      continue;
    }
    (*added)->is_accepted = true;
    if (!is_local) ChooseCongestion(**added);
  }
}

// Of a connected one: it depends on how far the peer is.
void TcpContext::ChooseCongestion(const Connection& connection) {
  SetCongestion(connection.socket.get(), options_.congestion);
  congestion_ = CongestionControlOf(connection.socket.get());
}

std::string TcpContext::DescribeCongestion() const {
  const std::string text =
      congestion_.empty() ? DescribeWish(options_.congestion) : congestion_;
  return text.empty() ? "" : absl::StrCat(" (", text, ")");
}

}  // namespace tcp
}  // namespace telegrad
