#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "transport/send_checks.h"
#include "transport/tcp/tcp_context.h"

namespace telegrad::tcp {

void TcpContext::Read(Connection& connection) {
  size_t turn = 0;
  while (connection.is_readable && !connection.has_ended &&
         connection.state != State::kFailed && turn < kTurnBytes) {
    // Whoever has closed its side hears nothing more.
    const Bytes direct = connection.state == State::kOpen
                             ? connection.incoming.direct()
                             : Bytes();
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
    if (placed > 0 &&
        connection.incoming.AddDirect(placed) == Incoming::Event::kWhole) {
      EndMessage(connection);
    }
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

void TcpContext::Take(Connection& connection, ConstBytes bytes) {
  while (bytes.size > 0 && connection.may_hear()) {
    if (connection.incoming.has_greeted() && !connection.proof.is_done()) {
      ReceiveProof(connection, &bytes);
      continue;
    }
    const absl::StatusOr<Incoming::Event> event =
        connection.incoming.Take(&bytes);
    if (!event.ok()) return FailProtocol(connection, event.status().message());
    switch (*event) {
      case Incoming::Event::kNone:
        break;
      case Incoming::Event::kHello:
        if (connection.is_accepted) SendHello(connection);
        ReceiveProof(connection, &bytes);
        break;
      case Incoming::Event::kHead:
        TakeHead(connection);
        break;
      case Incoming::Event::kWhole:
        EndMessage(connection);
        break;
    }
  }
}

void TcpContext::TakeHead(Connection& connection) {
  Incoming& incoming = connection.incoming;
  absl::Status taken;
  switch (incoming.record().kind) {
    case Kind::kMessage:
    case Kind::kExposed:
      return BeginMessage(connection);
    case Kind::kGoodbye:
      // All that the peer has sent was heard, and it hears nothing more.
      return Fail(connection,
                  absl::UnavailableError("the peer has closed the connection"));
    case Kind::kOffer:
      taken = connection.memory->TakeOffer(UnpackOffer(incoming.extra()));
      // No answer: it goes on sending payloads.
      if (taken.ok() && connection.memory->reads_peer()) {
        Enqueue(connection, MakeControl({Kind::kAccept}));
      }
      break;
    case Kind::kAccept:
      taken = connection.memory->TakeAccept();
      break;
    case Kind::kTaken:
      if (!connection.queue.FinishExposed(done_)) {
        taken = absl::InvalidArgumentError("thanks for nothing");
      }
      break;
    case Kind::kHello:
      break;  // ParseRecord lets none through
  }
  if (!taken.ok()) return FailProtocol(connection, taken.message());
  incoming.End();
}

// Once it is right, or none is due, the peer is there.
void TcpContext::ReceiveProof(Connection& connection, ConstBytes* bytes) {
  absl::string_view left(reinterpret_cast<const char*>(bytes->data),
                         bytes->size);
  const absl::StatusOr<std::string> answer = connection.proof.Take(&left);
  if (!answer.ok()) return Fail(connection, answer.status());
  *bytes = {left.data(), left.size()};
  connection.opening += *answer;
  if (!connection.proof.is_done()) return;
  connections_.HasGreeted(connection);
  if (!connection.is_accepted) return;
  connection.is_announced = true;
  ++num_events_;
  handler_->OnAccept(connection.id);
}

void TcpContext::BeginMessage(Connection& connection) {
  Incoming& incoming = connection.incoming;
  const Record& record = incoming.record();
  ++num_events_;
  absl::StatusOr<Bytes> target = handler_->OnHeader(
      connection.id, incoming.header(), record.payload_bytes);
  if (connection.state != State::kOpen) return;
  CheckTarget(target, record.payload_bytes);
  if (!target.ok()) {
    return Fail(connection,
                absl::CancelledError(absl::StrCat("message refused: ",
                                                  target.status().message())));
  }
  incoming.Begin(*target);
  if (record.kind == Kind::kExposed) return CopyFromPeer(connection);
  if (record.payload_bytes == 0) EndMessage(connection);
}

void TcpContext::CopyFromPeer(Connection& connection) {
  if (!connection.memory->reads_peer()) {
    return FailProtocol(connection, "memory that was not accepted");
  }
  const Incoming& incoming = connection.incoming;
  const bool is_read = connection.memory->Read(
      incoming.payload(), LoadLittleEndian<uint64_t>(incoming.extra()));
  // A sender that has given up hangs up before it reuses its memory.
  if (!is_read || HasHungUp(connection.socket.get())) {
    return Fail(connection, absl::UnavailableError(
                                "the peer is gone: its memory cannot be read"));
  }
  num_moved_ += incoming.payload().size;
  Enqueue(connection, MakeControl({Kind::kTaken}));
  EndMessage(connection);
}

void TcpContext::EndMessage(Connection& connection) {
  Incoming& incoming = connection.incoming;
  ++num_events_;
  handler_->OnMessage(connection.id, incoming.header(), incoming.payload());
  incoming.End();
}

}  // namespace telegrad::tcp
