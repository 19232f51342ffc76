#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "transport/decorators/multirail/multirail_context.h"
#include "transport/send_checks.h"

namespace telegrad::multirail {
namespace {

// What a connection is given before it has sent it: four parts, enough to be
// busy until more comes, little enough that a slower one is not left with all.
constexpr size_t kWindowBytes = 4 * (kPartBytes + kMaxCarriedBytes);

}  // namespace

absl::Status MultiRailContext::Send(EndpointId to, ConstBytes header,
                                    ConstBytes payload, SendDone done) {
  Endpoint* const endpoint = Find(to);
  if (endpoint == nullptr || endpoint->state != State::kOpen) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  RETURN_IF_ERROR(CheckOnHost("of several connections", payload.device));
  auto message = std::make_shared<Outgoing>();
  std::copy_n(header.data, header.size, message->header.data() + kPrefixBytes);
  message->header_bytes = kPrefixBytes + header.size;
  message->sequence = endpoint->next_to_send++;
  message->payload = payload;
  message->num_parts = NumParts(payload.size);
  message->done = std::move(done);
  endpoint->queue.push_back(std::move(message));
  Dispatch(*endpoint);
  return absl::OkStatus();
}

void MultiRailContext::Dispatch(Endpoint& endpoint) {
  GiveQueued(endpoint);
  if (endpoint.state == State::kFlushing && endpoint.queue.empty()) {
    CloseConnections(endpoint);
  }
}

// A part may wait for a fast connection although a slow one is idle, if it is
// sent sooner so.
void MultiRailContext::GiveQueued(Endpoint& endpoint) {
  while (!endpoint.queue.empty()) {
    const std::shared_ptr<Outgoing> message = endpoint.queue.front();
    if (message->num_given == 0 && !MayBegin(endpoint, *message)) {
      return AskFor(endpoint, message->sequence);
    }
    const size_t bytes = PartBytes(message->payload.size, message->num_given);
    Connection* const soonest = Soonest(endpoint, bytes);
    if (soonest == nullptr) return;
    if (!HasRoom(*soonest, bytes)) return LookAgainSoon(endpoint);
    Give(endpoint, *soonest, message);
    if (message->num_given == message->num_parts) endpoint.queue.pop_front();
  }
}

// The receiver holds what comes before its turn.
bool MultiRailContext::MayBegin(const Endpoint& endpoint,
                                const Outgoing& message) {
  const uint64_t heard = endpoint.heard_by_peer.weight;
  const uint64_t ahead = endpoint.weight_begun - heard;
  return ahead == 0 || ahead + Weight(message.payload.size) <= MaxLead(heard);
}

// Once: the peer tells when it has heard so many, all that were begun.
void MultiRailContext::AskFor(Endpoint& endpoint, uint32_t messages) {
  if (endpoint.has_asked_for == messages) return;
  std::array<std::byte, kPrefixBytes> text;
  PackAsk(messages, text.data());
  if (SendBare(endpoint, text)) endpoint.has_asked_for = messages;
}

// Over the first connection that takes it.
bool MultiRailContext::SendBare(
    Endpoint& endpoint, const std::array<std::byte, kPrefixBytes>& text) {
  return std::any_of(endpoint.connections.begin(), endpoint.connections.end(),
                     [&](const Connection& connection) {
                       return connection.is_open && connection.is_usable &&
                              inner()
                                  .Send(connection.inner,
                                        {text.data(), text.size()}, {}, nullptr)
                                  .ok();
                     });
}

bool MultiRailContext::HasRoom(const Connection& connection, size_t bytes) {
  return connection.bytes_given == 0 ||
         connection.bytes_given + bytes <= kWindowBytes;
}

// The connection that will have sent so many bytes first, by its pace of late.
// Null: there is none, or they have yet to show their pace.
MultiRailContext::Connection* MultiRailContext::Soonest(Endpoint& endpoint,
                                                        size_t bytes) {
  const TimePoint now = Clock::now();
  const bool is_heard = endpoint.heard_by_peer.weight > 0;
  Connection* best = nullptr;
  std::pair<double, size_t> best_finish;
  for (Connection& connection : endpoint.connections) {
    if (!connection.is_open || !connection.is_usable) continue;
    const size_t given = connection.bytes_given;
    const bool has_room = HasRoom(connection, bytes);
    if (!is_heard) return has_room ? &connection : nullptr;
    // Small messages keep to one connection, and so arrive in order.
    if (bytes < kSmallBytes && given < kSmallBytes) return &connection;
    if (!has_room && !connection.pace.is_known()) continue;
    const std::pair finish(connection.pace.SecondsFor(given, bytes, now),
                           given);  // where no pace is known
    if (best == nullptr || finish < best_finish) {
      best = &connection;
      best_finish = finish;
    }
  }
  return best;
}

// The connection that it waits for may stand still while others have sent all.
void MultiRailContext::LookAgainSoon(const Endpoint& endpoint) {
  const auto found = std::find(waiting_.begin(), waiting_.end(), endpoint.id);
  if (found == waiting_.end()) waiting_.push_back(endpoint.id);
}

void MultiRailContext::Give(Endpoint& endpoint, Connection& connection,
                            const std::shared_ptr<Outgoing>& message) {
  const size_t size = message->payload.size, index = message->num_given++;
  const size_t bytes = PartBytes(size, index);
  if (index == 0) endpoint.weight_begun += Weight(size);
  PackPart(
      {.sequence = message->sequence, .payload_bytes = size, .index = index},
      message->header.data());
  const size_t given = bytes + message->header_bytes;
  if (connection.bytes_given == 0) connection.pace.Begin(Clock::now());
  connection.bytes_given += given;
  // The inner transport hears of the end of a connection after its last send.
  const auto finish = [this, &endpoint, &connection, message,
                       given](const absl::Status& status) {
    FinishPart(endpoint, connection, *message, given, status);
  };
  connection.is_usable =
      Pass(connection.inner, {message->header.data(), message->header_bytes},
           {message->payload.data + index * kPartBytes, bytes}, finish);
}

void MultiRailContext::FinishPart(Endpoint& endpoint, Connection& connection,
                                  Outgoing& message, size_t bytes,
                                  const absl::Status& status) {
  connection.bytes_given -= bytes;
  connection.pace.Add(bytes, Clock::now());
  if (message.status.ok()) message.status = status;
  ++message.num_finished;
  FinishIfWhole(message);
  Dispatch(endpoint);
}

void MultiRailContext::FinishIfWhole(Outgoing& message) {
  if (message.num_finished < message.num_parts) return;
  ++num_events_;
  if (message.done) message.done(message.status);
}

// Parts that the inner transport has end there.
void MultiRailContext::RefuseQueue(Endpoint& endpoint) {
  for (const std::shared_ptr<Outgoing>& message : endpoint.queue) {
    message->num_parts = message->num_given;
    if (message->status.ok()) message->status = endpoint.why;
    if (message->num_finished == message->num_given) {
      Defer([this, message](const absl::Status&) { FinishIfWhole(*message); },
            message->status);
    }
  }
  endpoint.queue.clear();
}

}  // namespace telegrad::multirail
