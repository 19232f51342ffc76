#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "transport/decorators/resend/resend_context.h"

namespace telegrad::resend {
namespace {

// Of one message, with the inner transport at a time, whatever a peer asks for.
constexpr int kMaxCopies = 2;

}  // namespace

void ResendContext::Enqueue(Endpoint& endpoint, Kind kind, ConstBytes header,
                            ConstBytes payload, SendDone done, uint32_t body) {
  Outgoing& message = endpoint.outgoing.emplace_back();
  message.endpoint = &endpoint;
  message.kind = kind;
  message.sequence = endpoint.next_sequence++;
  message.payload = payload;
  message.done = std::move(done);
  if (kind == Kind::kMessage) body = Crc32c(payload.data, payload.size);
  PackPrefix({.kind = kind, .sequence = message.sequence, .body = body}, header,
             message.header.data());
  std::copy_n(header.data, header.size, message.header.data() + kPrefixBytes);
  message.header_bytes = kPrefixBytes + header.size;
  SendQueued(endpoint);
}

void ResendContext::SendQueued(Endpoint& endpoint) {
  while (!endpoint.is_closed && endpoint.num_sent < endpoint.outgoing.size()) {
    Outgoing& message = endpoint.outgoing[endpoint.num_sent];
    const bool has_room =
        endpoint.num_sent < limits_.window_messages &&
        endpoint.sent_bytes + message.payload.size <= limits_.window_bytes;
    if (endpoint.num_sent > 0 && !has_room) return;
    ++endpoint.num_sent;
    endpoint.sent_bytes += message.payload.size;
    SendCopy(message);
  }
}

// A refusal has its end to be heard of.
void ResendContext::SendCopy(Outgoing& message) {
  message.sent_at = Clock::now();
  const absl::Status sent = inner().Send(
      message.endpoint->id, {message.header.data(), message.header_bytes},
      message.payload, [this, &message](const absl::Status&) {
        --message.num_inner;
        message.left_at = Clock::now();
        Complete(*message.endpoint);
      });
  if (sent.ok()) ++message.num_inner;
}

void ResendContext::SendAgain(Outgoing& message) {
  if (message.num_resends == limits_.max_resends) {
    Fail(*message.endpoint,
         absl::UnavailableError(
             absl::StrCat("message ", message.sequence, " was sent again ",
                          message.num_resends, " times in vain")));
    return;
  }
  ++message.num_resends;
  ++num_again_;
  SendCopy(message);
}

// `messages`: so many, from the first ever.
void ResendContext::TakeAcknowledgement(Endpoint& endpoint, uint32_t messages) {
  if (!IsBefore(endpoint.acknowledged, messages)) return;  // an old one
  const uint32_t first =
      endpoint.next_sequence - static_cast<uint32_t>(endpoint.outgoing.size());
  if (messages - first > endpoint.num_sent) {
    Fail(endpoint,
         absl::CancelledError(absl::StrCat(
             "message ", messages - 1, " was acknowledged and never sent")));
    return;
  }
  MeasureRoundTrip(endpoint, endpoint.outgoing[endpoint.acknowledged - first],
                   endpoint.outgoing[messages - first - 1]);
  endpoint.acknowledged = messages;
  endpoint.advanced_at = Clock::now();
  endpoint.num_timeouts = 0;
  Complete(endpoint);
}

// By the last of those that an answer is for. Of what was sent twice it is not
// known which copy was taken, and others have waited for it.
void ResendContext::MeasureRoundTrip(Endpoint& endpoint, const Outgoing& first,
                                     const Outgoing& last) {
  if (first.num_resends > 0 || last.num_resends > 0 || last.num_inner > 0) {
    return;
  }
  const Duration took = Clock::now() - last.left_at;
  Duration& mean = endpoint.round_trip;
  mean = mean == Duration::zero() ? took : (7 * mean + took) / 8;
  Duration& shortest = endpoint.shortest_round_trip;
  shortest = shortest == Duration::zero() ? took : std::min(shortest, took);
}

// Calls `done` of what the peer has taken and the inner transport has returned.
void ResendContext::Complete(Endpoint& endpoint) {
  while (!endpoint.outgoing.empty()) {
    Outgoing& first = endpoint.outgoing.front();
    if (!IsBefore(first.sequence, endpoint.acknowledged) ||
        first.num_inner > 0) {
      break;
    }
    const SendDone done = std::move(first.done);
    endpoint.sent_bytes -= first.payload.size;
    --endpoint.num_sent;
    endpoint.outgoing.pop_front();
    if (done) done(absl::OkStatus());
  }
  SendQueued(endpoint);
  if (!endpoint.why.ok() && endpoint.outgoing.empty()) Cut(endpoint);
}

// Asked for is the first that is lacking; others before one that is here are
// lacking, too. A question takes a round trip, so none comes sooner.
void ResendContext::TakeAgain(Endpoint& endpoint, const Prefix& prefix) {
  TakeAcknowledgement(endpoint, prefix.sequence);
  if (prefix.sequence != endpoint.acknowledged || endpoint.is_closed) return;
  const TimePoint now = Clock::now();
  uint32_t num_asked = 1;
  for (uint32_t i = 0; i < kAckedBits; ++i) {
    if (IsHere(prefix.body, i)) num_asked = i + 1;
  }
  const uint32_t base =
      endpoint.next_sequence - static_cast<uint32_t>(endpoint.outgoing.size());
  for (uint32_t i = 0; i < num_asked && !endpoint.is_closed; ++i) {
    if (i > 0 && IsHere(prefix.body, i - 1)) continue;
    const uint32_t place = prefix.sequence + i - base;
    if (place >= endpoint.num_sent) return;
    Outgoing& message = endpoint.outgoing[place];
    const bool is_asked_before =
        message.num_resends > 0 &&
        now - message.sent_at < endpoint.shortest_round_trip;
    if (is_asked_before || message.num_inner >= kMaxCopies) continue;
    SendAgain(message);
  }
}

Duration ResendContext::Timeout(const Endpoint& endpoint) const {
  const Duration first = std::max(limits_.min_timeout, 4 * endpoint.round_trip);
  constexpr int kMaxDoublings = 16;
  const int doublings = std::min(endpoint.num_timeouts, kMaxDoublings);
  return std::min(first * (1 << doublings), limits_.max_timeout);
}

TimePoint ResendContext::AdvanceTimer(Endpoint& endpoint, TimePoint now) {
  if (endpoint.is_closed) return TimePoint::max();
  TimePoint next = TimePoint::max();
  if (!endpoint.why.ok()) {
    if (endpoint.close_by <= now) {
      Cut(endpoint);
      return next;
    }
    next = endpoint.close_by;
  }
  const uint32_t num_queued = endpoint.next_sequence - endpoint.acknowledged;
  if (num_queued == 0) return next;
  Outgoing& oldest = endpoint.outgoing[endpoint.outgoing.size() - num_queued];
  // What has not left waits for nobody but the inner transport.
  if (oldest.num_inner > 0 || oldest.left_at == TimePoint()) return next;
  const TimePoint since = std::max(oldest.left_at, endpoint.advanced_at);
  if (since + Timeout(endpoint) <= now) {
    ++endpoint.num_timeouts;
    SendAgain(oldest);
    return next;
  }
  return std::min(next, since + Timeout(endpoint));
}

}  // namespace telegrad::resend
