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
  Connection* const connection = Find(id);
  if (connection == nullptr || connection->state != State::kOpen ||
      !connection->is_announced) {
    return;
  }
  BeginClosing(*connection, State::kClosing,
               absl::CancelledError("closed by this side"));
  SendBare(*connection, Kind::kGoodbye);
}

void TcpContext::BeginClosing(Connection& connection, State state,
                              absl::Status why) {
  if (connection.state == State::kOpen) {
    closing_.push_back(connection.id);
    connection.why = std::move(why);
    connection.close_by = Clock::now() + kCloseGrace;
  }
  connection.state = state;
}

void TcpContext::Fail(Connection& connection, absl::Status why) {
  BeginClosing(connection, State::kFailed, std::move(why));
}

void TcpContext::FailProtocol(Connection& connection, absl::string_view what) {
  Fail(connection, absl::UnavailableError(
                       absl::StrCat("the peer breaks the protocol: ", what)));
}

// All that the peer has sent was heard, and it hears nothing more.
void TcpContext::HearGoodbye(Connection& connection) {
  Fail(connection,
       absl::UnavailableError("the peer has closed the connection"));
}

void TcpContext::ExpireGreetings(TimePoint now) {
  for (const EndpointId id : greeting_) {
    Connection& connection = *Find(id);
    if (connection.greet_by > now) continue;
    Fail(connection, absl::UnavailableError("the peer sent no hello in time"));
  }
}

void TcpContext::AdvanceClosing() {
  const TimePoint now = Clock::now();
  ExpireGreetings(now);
  for (size_t i = 0; i < closing_.size();) {
    Connection& connection = *Find(closing_[i]);
    const bool is_settled =
        connection.state == State::kFailed || connection.has_ended;
    if (!is_settled && now < connection.close_by) {
      ++i;
      continue;
    }
    closing_[i] = closing_.back();
    closing_.pop_back();
    Cut(connection);
  }
}

void TcpContext::Cut(Connection& cut) {
  const auto node = connections_.extract(cut.id);
  Connection& connection = *node.mapped();
  std::erase(greeting_, connection.id);
  // Also for a child that has inherited it: before `done`, after which the
  // memory that the peer may be reading is used again.
  if (connection.is_local) (void)shutdown(connection.socket.get(), SHUT_RDWR);
  connection.socket.Close();
  // Who hears a goodbye has copied all before it.
  const bool is_taken =
      connection.state == State::kClosing && connection.has_ended;
  for (SendDone& done : connection.untaken) {
    if (!done) continue;
    done_.push_back(
        {std::move(done), is_taken ? absl::OkStatus() : connection.why});
  }
  connection.untaken.clear();
  for (Outgoing& message : connection.queue) {
    if (message.done) {
      done_.push_back({std::move(message.done), connection.why});
    }
  }
  connection.queue.clear();
  CallDone();
  if (!connection.is_announced) return;
  ++num_events_;
  handler_->OnClosed(connection.id, connection.why);
}

TimePoint TcpContext::NextTimer() const {
  TimePoint next = TimePoint::max();
  for (const EndpointId id : closing_) {
    next = std::min(next, connections_.at(id)->close_by);
  }
  for (const EndpointId id : greeting_) {
    next = std::min(next, connections_.at(id)->greet_by);
  }
  return next;
}

}  // namespace telegrad::tcp
