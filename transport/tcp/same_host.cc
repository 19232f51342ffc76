#include "transport/tcp/same_host.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/local_socket.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "transport/tcp/progress.h"
#include "transport/tcp/tcp_context.h"

// Peers on this machine. They are found by the name that belongs to a
// listener's address, which only processes of one network namespace can reach,
// and where the kernel permits it, large payloads are copied once, by the
// receiver.
namespace telegrad::tcp {
namespace {

std::string NameOf(absl::string_view address) {
  return absl::StrCat("telegrad ", address);
}

}  // namespace

Mark MakeMark() {
  std::random_device random;
  return {.process = static_cast<uint64_t>(getpid()),
          .secret = uint64_t{random()} << 32 | random()};
}

bool IsTrusted(int socket, LocalPeer* peer) {
  const absl::StatusOr<LocalPeer> found = PeerOf(socket);
  if (found.ok()) *peer = *found;
  return found.ok() && found->is_same_user;
}

std::string TcpContext::DescribeSameHost() const {
  if (!options_.tls.empty()) return ", TCP only";
  size_t num_local = 0, num_read = 0;
  for (const auto& [id, connection] : connections_.all()) {
    if (!connection->is_local) continue;
    ++num_local;
    if (connection->reads_peer) ++num_read;
  }
  if (num_local == 0) return "";
  return absl::StrCat(", ", num_local,
                      " endpoints on this machine without TCP, ", num_read,
                      " of them by memory");
}

// Without: peers of this host take TCP as well.
void TcpContext::ListenOnSameHost(absl::string_view address) {
  if (!options_.tls.empty()) return;
  const absl::Status listening =
      same_host_.ListenLocal(NameOf(address), poller_, kSameHostKey);
  if (listening.ok()) return;
  LogWarning(
      "transport tcp: processes of this machine will be reached over "
      "TCP: ",
      listening.message());
}

// Not open: there is none, or not of this user.
UniqueFd TcpContext::ReachOnSameHost(absl::string_view address,
                                     LocalPeer* peer) const {
  if (!options_.tls.empty()) return UniqueFd();
  absl::StatusOr<UniqueFd> socket = ConnectLocal(NameOf(address));
  if (!socket.ok() || !IsTrusted(socket->get(), peer)) return UniqueFd();
  return *std::move(socket);
}

bool TcpContext::IsInMemory(EndpointId id) const {
  const Connection* const connection = connections_.Find(id);
  return connection != nullptr && connection->is_local;
}

void TcpContext::SendBare(Connection& connection, Kind kind) {
  Outgoing message;
  PackRecord({.kind = kind}, message.head.data());
  message.head_bytes = kRecordBytes;
  Enqueue(connection, std::move(message));
}

void TcpContext::OfferMemory(Connection& connection) {
  Outgoing message;
  PackRecord({.kind = Kind::kOffer, .header_bytes = kOfferBytes},
             message.head.data());
  PackOffer(&mark_, message.head.data() + kRecordBytes);
  message.head_bytes = kRecordBytes + kOfferBytes;
  Enqueue(connection, std::move(message));
}

// No answer: it goes on sending payloads.
void TcpContext::TakeOffer(Connection& connection) {
  if (std::exchange(connection.has_offered, true)) {
    return FailProtocol(connection, "a second offer");
  }
  const Offer offer = UnpackOffer(connection.incoming.extra());
  Mark seen;
  const bool is_the_peer =
      offer.mark.process == static_cast<uint64_t>(connection.peer_process) &&
      ReadProcess(connection.peer_process,
                  {reinterpret_cast<std::byte*>(&seen), sizeof(seen)},
                  offer.place) &&
      seen == offer.mark;
  if (!is_the_peer) return;
  connection.reads_peer = true;
  SendBare(connection, Kind::kAccept);
}

void TcpContext::TakeAccept(Connection& connection) {
  if (std::exchange(connection.is_readable_by_peer, true)) {
    FailProtocol(connection, "an offer is accepted twice");
  }
}

void TcpContext::TakeTaken(Connection& connection) {
  if (connection.untaken.empty()) {
    return FailProtocol(connection, "thanks for nothing");
  }
  SendDone done = std::move(connection.untaken.front());
  connection.untaken.pop_front();
  done_.Add(std::move(done), absl::OkStatus());
}

void TcpContext::CopyFromPeer(Connection& connection) {
  if (!connection.reads_peer) {
    return FailProtocol(connection, "memory that was not accepted");
  }
  const Incoming& incoming = connection.incoming;
  const size_t num_bytes = incoming.record.payload_bytes;
  const bool is_read =
      ReadProcess(connection.peer_process, {incoming.target.data, num_bytes},
                  LoadLittleEndian<uint64_t>(incoming.extra()));
  // A sender that has given up hangs up before it reuses its memory.
  if (!is_read || HasHungUp(connection.socket.get())) {
    return Fail(connection, absl::UnavailableError(
                                "the peer is gone: its memory cannot be read"));
  }
  num_moved_ += num_bytes;
  SendBare(connection, Kind::kTaken);
  EndMessage(connection);
}

}  // namespace telegrad::tcp
