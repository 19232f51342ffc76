#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/send_checks.h"
#include "transport/tcp/tcp_context.h"

namespace telegrad::tcp {
namespace {

// What is left of a payload is read to where it belongs, if it is as much.
constexpr size_t kDirectBytes = size_t{4} << 10;
constexpr size_t kTurnBytes = size_t{1} << 20;  // then others have their turn

// Where the next bytes of a payload belong; empty: not known yet.
Bytes DirectTarget(const Connection& connection) {
  const Incoming& incoming = connection.incoming;
  if (connection.state != State::kOpen || !incoming.is_begun) return {};
  const size_t left = incoming.record.payload_bytes - incoming.received;
  if (left < kDirectBytes) return {};
  return {incoming.target.data + incoming.received, left};
}

}  // namespace

void TcpContext::Read(Connection& connection) {
  size_t turn = 0;
  while (connection.is_readable && !connection.has_ended &&
         connection.state != State::kFailed && turn < kTurnBytes) {
    const Bytes direct = DirectTarget(connection);
    const std::array<iovec, 2> places = {
        iovec{direct.data, direct.size},
        iovec{staging_.data(), staging_.size()}};
    const ssize_t result =
        direct.size > 0
            ? readv(connection.socket.get(), places.data(), places.size())
            : read(connection.socket.get(), staging_.data(), staging_.size());
    if (result < 0 && errno == EINTR) continue;
    if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      connection.is_readable = false;
      return;
    }
    if (result <= 0) return HandleEnd(connection, result < 0 ? errno : 0);
    const auto bytes = static_cast<size_t>(result);
    // Fewer than there was place for: there is no more, for now.
    connection.is_readable =
        connection.is_ending || bytes == direct.size + staging_.size();
    num_moved_ += bytes;
    turn += bytes;
    const size_t placed = std::min(bytes, direct.size);
    if (placed > 0) TakePayload(connection, placed);
    Take(connection, {staging_.data(), bytes - placed});
  }
}

// All that has arrived was heard.
void TcpContext::HandleEnd(Connection& connection, int error) {
  connection.has_ended = true;
  connection.is_readable = false;
  if (connection.state != State::kOpen) return;  // AdvanceClosing sees it
  Fail(connection,
       absl::UnavailableError(absl::StrCat(
           "the peer is gone: its connection has ended", error == 0 ? "" : ": ",
           error == 0 ? "" : std::strerror(error))));
}

// Whoever has closed its side hears nothing more.
void TcpContext::Take(Connection& connection, ConstBytes bytes) {
  while (bytes.size > 0 && connection.state == State::kOpen) {
    size_t taken = 0;
    Incoming& incoming = connection.incoming;
    if (incoming.is_begun) {
      taken = std::min(bytes.size,
                       incoming.record.payload_bytes - incoming.received);
      std::copy_n(bytes.data, taken, incoming.target.data + incoming.received);
      TakePayload(connection, taken);
    } else {
      taken = TakeHead(connection, bytes);
    }
    bytes = {bytes.data + taken, bytes.size - taken};
  }
}

// Takes the record first, then the header, whose size it tells.
size_t TcpContext::TakeHead(Connection& connection, ConstBytes bytes) {
  Incoming& incoming = connection.incoming;
  const bool is_record = incoming.head_bytes < kRecordBytes;
  const size_t due =
      kRecordBytes + (is_record ? 0 : incoming.record.header_bytes);
  const size_t taken = std::min(bytes.size, due - incoming.head_bytes);
  std::copy_n(bytes.data, taken, incoming.head.data() + incoming.head_bytes);
  incoming.head_bytes += taken;
  if (incoming.head_bytes < due) return taken;
  if (is_record) {
    TakeRecord(connection);
  } else {
    TakeHeader(connection);
  }
  return taken;
}

void TcpContext::TakeRecord(Connection& connection) {
  if (!connection.has_greeted) return ReceiveHello(connection);
  Incoming& incoming = connection.incoming;
  const absl::StatusOr<Record> record = ParseRecord(
      incoming.head.data(), connection.is_local, MaxHeaderBytes(options_));
  if (!record.ok()) {
    return FailProtocol(connection, record.status().message());
  }
  incoming.record = *record;
  if (record->header_bytes == 0) TakeHeader(connection);
}

// The record and its header are whole.
void TcpContext::TakeHeader(Connection& connection) {
  switch (connection.incoming.record.kind) {
    case Kind::kMessage:
    case Kind::kExposed:
      return BeginMessage(connection);
    case Kind::kGoodbye:
      return ReceiveGoodbye(connection);
    case Kind::kOffer:
      TakeOffer(connection);
      break;
    case Kind::kAccept:
      TakeAccept(connection);
      break;
    case Kind::kTaken:
      TakeTaken(connection);
      break;
    case Kind::kHello:
      break;  // ParseRecord lets none through
  }
  connection.incoming.head_bytes = 0;
}

void TcpContext::ReceiveHello(Connection& connection) {
  if (!IsHello(connection.incoming.head.data())) {
    return FailProtocol(connection, "no hello of this version");
  }
  connection.incoming.head_bytes = 0;
  connection.has_greeted = true;
  connections_.HasGreeted(connection);
  if (!connection.is_accepted) return;
  SendHello(connection);
  connection.is_announced = true;
  ++num_events_;
  handler_->OnAccept(connection.id);
}

void TcpContext::BeginMessage(Connection& connection) {
  Incoming& incoming = connection.incoming;
  const size_t payload_bytes = incoming.record.payload_bytes;
  ++num_events_;
  absl::StatusOr<Bytes> target =
      handler_->OnHeader(connection.id, incoming.header(), payload_bytes);
  if (connection.state != State::kOpen) return;
  CheckTarget(target, payload_bytes);
  if (!target.ok()) {
    return Fail(connection,
                absl::CancelledError(absl::StrCat("message refused: ",
                                                  target.status().message())));
  }
  incoming.target = *target;
  incoming.received = 0;
  incoming.is_begun = true;
  if (incoming.record.kind == Kind::kExposed) return CopyFromPeer(connection);
  if (payload_bytes == 0) EndMessage(connection);
}

void TcpContext::TakePayload(Connection& connection, size_t bytes) {
  Incoming& incoming = connection.incoming;
  incoming.received += bytes;
  if (incoming.received == incoming.record.payload_bytes) {
    EndMessage(connection);
  }
}

void TcpContext::EndMessage(Connection& connection) {
  Incoming& incoming = connection.incoming;
  incoming.is_begun = false;
  ++num_events_;
  handler_->OnMessage(connection.id, incoming.header(),
                      {incoming.target.data, incoming.record.payload_bytes,
                       incoming.target.device});
  incoming.head_bytes = 0;
}

}  // namespace telegrad::tcp
