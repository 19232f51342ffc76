#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/tcp/tcp_context.h"

// The end of a connection. An orderly one begins with a goodbye behind all
// messages; a connection that ends without is a lost peer.
namespace telegrad::tcp {

void TcpContext::Close(EndpointId id) {
  Connection* const connection = connections_.Find(id);
  if (connection == nullptr || connection->state != State::kOpen ||
      !connection->is_announced) {
    return;
  }
  connections_.BeginClosing(*connection, State::kClosing,
                            absl::CancelledError("closed by this side"));
  SendBare(*connection, Kind::kGoodbye);
}

void TcpContext::Fail(Connection& connection, absl::Status why) {
  connections_.BeginClosing(connection, State::kFailed, std::move(why));
}

void TcpContext::FailProtocol(Connection& connection, absl::string_view what) {
  Fail(connection, absl::UnavailableError(
                       absl::StrCat("the peer breaks the protocol: ", what)));
}

// All that the peer has sent was heard, and it hears nothing more.
void TcpContext::ReceiveGoodbye(Connection& connection) {
  Fail(connection,
       absl::UnavailableError("the peer has closed the connection"));
}

void TcpContext::AdvanceClosing() {
  connections_.Advance(
      State::kFailed,
      [](const Connection& connection) {
        return connection.state == State::kFailed || connection.has_ended;
      },
      [this](Connection& connection) { Cut(connection); });
}

void TcpContext::Cut(Connection& cut) {
  const std::unique_ptr<Connection> removed = connections_.Remove(cut.id);
  Connection& connection = *removed;
  // Also for a child that has inherited it: before `done`, after which the
  // memory that the peer may be reading is used again.
  if (connection.is_local) (void)shutdown(connection.socket.get(), SHUT_RDWR);
  connection.socket.Close();
  // Who hears a goodbye has copied all before it.
  const bool is_taken =
      connection.state == State::kClosing && connection.has_ended;
  for (SendDone& done : connection.untaken) {
    done_.Add(std::move(done), is_taken ? absl::OkStatus() : connection.why);
  }
  connection.untaken.clear();
  for (Outgoing& message : connection.queue) {
    done_.Add(std::move(message.done), connection.why);
  }
  connection.queue.clear();
  CallDone();
  if (!connection.is_announced) return;
  ++num_events_;
  handler_->OnClosed(connection.id, connection.why);
}

}  // namespace telegrad::tcp
