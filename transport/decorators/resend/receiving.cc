#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "transport/decorators/resend/resend_context.h"
#include "transport/send_checks.h"

namespace telegrad::resend {
namespace {

// In a row; then the peer does not send what this decorator does.
constexpr int kMaxHarmedHeaders = 16;
// A sender whose window is full waits for an answer.
constexpr uint32_t kTakenPerAnswer = 256;

bool IsOfSender(Kind kind) {
  return kind == Kind::kMessage || kind == Kind::kEnd;
}

}  // namespace

absl::StatusOr<Bytes> ResendContext::OnHeader(EndpointId from,
                                              ConstBytes header,
                                              size_t payload_bytes) {
  Endpoint& endpoint = *Find(from);
  if (endpoint.is_closed) return Forget(endpoint, {}, payload_bytes);
  const absl::StatusOr<Prefix> prefix = ParsePrefix(header, payload_bytes);
  if (absl::IsDataLoss(prefix.status())) {
    return TakeHarmed(endpoint, prefix.status(), payload_bytes);
  }
  if (!prefix.ok()) return Refuse(endpoint, prefix.status());
  endpoint.num_harmed = 0;
  if (!IsOfSender(prefix->kind)) {
    endpoint.arriving.push_back({.prefix = *prefix, .is_wanted = true});
    return Bytes();
  }
  const ConstBytes rest(header.data + kPrefixBytes, header.size - kPrefixBytes);
  absl::StatusOr<Bytes> target =
      BeginArriving(endpoint, *prefix, rest, payload_bytes);
  if (!target.ok()) return Refuse(endpoint, target.status());
  return target;
}

// Within OnHeader, whose error closes the inner endpoint. Returns what OnClosed
// will say.
absl::Status ResendContext::Refuse(Endpoint& endpoint,
                                   const absl::Status& why) {
  if (endpoint.why.ok()) {
    endpoint.why =
        absl::CancelledError(absl::StrCat("message refused: ", why.message()));
  }
  endpoint.is_closed = true;
  return endpoint.why;
}

// Read, but nobody looks at it.
Bytes ResendContext::Forget(Endpoint& endpoint, const Prefix& prefix,
                            size_t payload_bytes) {
  endpoint.arriving.push_back({.prefix = prefix, .is_wanted = false});
  if (forgotten_.size() == 0) forgotten_ = Buffer(kMaxPayloadBytes);
  return {forgotten_.data(), payload_bytes};
}

absl::StatusOr<Bytes> ResendContext::TakeHarmed(Endpoint& endpoint,
                                                const absl::Status& why,
                                                size_t payload_bytes) {
  ++num_harmed_;
  if (++endpoint.num_harmed == kMaxHarmedHeaders) {
    return Refuse(endpoint, absl::DataLossError(absl::StrCat(
                                kMaxHarmedHeaders,
                                " damaged headers, the last: ", why.message(),
                                "; has the peer resend, too?")));
  }
  AskAgain(endpoint);
  return Forget(endpoint, {}, payload_bytes);
}

absl::StatusOr<Bytes> ResendContext::BeginArriving(Endpoint& endpoint,
                                                   const Prefix& prefix,
                                                   ConstBytes header,
                                                   size_t payload_bytes) {
  if (!endpoint.why.ok()) {
    TakeUnheard(endpoint, prefix);
    return Forget(endpoint, prefix, payload_bytes);
  }
  const uint32_t place = prefix.sequence - endpoint.taken;
  const bool is_past = IsBefore(prefix.sequence, endpoint.taken);
  if (!is_past && place >= limits_.window_messages) {
    AskAgain(endpoint);
    return Forget(endpoint, prefix, payload_bytes);
  }
  if (!is_past && endpoint.incoming.size() <= place) {
    endpoint.incoming.resize(place + 1);
  }
  if (is_past || endpoint.incoming[place].state != State::kLacking) {
    ++num_duplicates_;
    Answer(endpoint);
    return Forget(endpoint, prefix, payload_bytes);
  }
  RETURN_IF_ERROR(
      Describe(endpoint.incoming[place], prefix, header, payload_bytes));
  ASSIGN_OR_RETURN(const Bytes target,
                   PlaceFor(endpoint, place, payload_bytes));
  // The handler may have closed; the window of bytes may be full.
  const bool is_wanted = endpoint.incoming[place].state == State::kArriving;
  if (!is_wanted) return Forget(endpoint, prefix, payload_bytes);
  endpoint.arriving.push_back({.prefix = prefix, .is_wanted = true});
  return target;
}

absl::Status ResendContext::Describe(Incoming& message, const Prefix& prefix,
                                     ConstBytes header, size_t payload_bytes) {
  if (message.is_begun) {  // it was harmed
    if (message.payload_bytes == payload_bytes && message.kind == prefix.kind &&
        std::equal(header.data, header.data + header.size,
                   message.header.data(),
                   message.header.data() + message.header_bytes)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("two messages ", prefix.sequence));
  }
  message.kind = prefix.kind;
  message.body = prefix.body;
  message.header_bytes = header.size;
  std::copy_n(header.data, header.size, message.header.data());
  message.payload_bytes = payload_bytes;
  return absl::OkStatus();
}

// Where the payload of `incoming[place]` goes: to the handler's memory if all
// before it goes there, too, else into our own. Lacking: nowhere.
absl::StatusOr<Bytes> ResendContext::PlaceFor(Endpoint& endpoint, size_t place,
                                              size_t payload_bytes) {
  Incoming& message = endpoint.incoming[place];
  if (message.is_begun) {
    --endpoint.num_lacking;
    message.state = State::kArriving;
    return message.target;
  }
  if (place == endpoint.num_begun && endpoint.num_lacking == 0) {
    message.state = State::kArriving;
    RETURN_IF_ERROR(Begin(endpoint, message));
    return message.target;
  }
  AskIfLacking(endpoint);
  if (endpoint.held_bytes + payload_bytes > limits_.window_bytes) {
    return Bytes();
  }
  ASSIGN_OR_RETURN(message.held, Buffer::Create(payload_bytes));
  ++num_reordered_;
  endpoint.held_bytes += payload_bytes;
  message.state = State::kArriving;
  return message.held.view();
}

// The handler hears the header of the first that it has not heard of.
absl::Status ResendContext::Begin(Endpoint& endpoint, Incoming& message) {
  if (message.kind == Kind::kMessage) {
    ASSIGN_OR_RETURN(message.target, handler().OnHeader(endpoint.id,
                                                        {message.header.data(),
                                                         message.header_bytes},
                                                        message.payload_bytes));
    RETURN_IF_ERROR(CheckTarget(message.target, message.payload_bytes));
  }
  message.is_begun = true;
  ++endpoint.num_begun;
  return absl::OkStatus();
}

void ResendContext::OnMessage(EndpointId from, ConstBytes, Bytes payload) {
  Endpoint& endpoint = *Find(from);
  const Arriving arrived = endpoint.arriving.front();
  endpoint.arriving.pop_front();
  if (endpoint.is_closed) return;
  const Prefix& prefix = arrived.prefix;
  if (prefix.kind == Kind::kTaken && arrived.is_wanted) {
    return TakeAcknowledgement(endpoint, prefix.sequence);
  }
  if (prefix.kind == Kind::kAgain && arrived.is_wanted) {
    return TakeAgain(endpoint, prefix);
  }
  if (arrived.is_wanted) EndArriving(endpoint, prefix, payload);
}

void ResendContext::EndArriving(Endpoint& endpoint, const Prefix& prefix,
                                Bytes payload) {
  if (!endpoint.why.ok()) return;
  Incoming& message = endpoint.incoming[prefix.sequence - endpoint.taken];
  const bool is_whole = prefix.kind == Kind::kEnd ||
                        Crc32c(payload.data, payload.size) == prefix.body;
  if (!is_whole) return Lose(endpoint, message);
  message.state = State::kHere;
  Deliver(endpoint);
}

// It is to come again, to the same place if the handler has given one.
void ResendContext::Lose(Endpoint& endpoint, Incoming& message) {
  ++num_harmed_;
  message.state = State::kLacking;
  if (message.is_begun) {
    ++endpoint.num_lacking;
  } else {
    endpoint.held_bytes -= message.held.size();
    message.held = Buffer();
  }
  AskAgain(endpoint);
}

void ResendContext::Deliver(Endpoint& endpoint) {
  while (endpoint.why.ok() && !endpoint.incoming.empty() &&
         endpoint.incoming.front().state == State::kHere) {
    DeliverFirst(endpoint);
  }
  if (endpoint.why.ok()) AskIfLacking(endpoint);
}

void ResendContext::DeliverFirst(Endpoint& endpoint) {
  Incoming& first = endpoint.incoming.front();
  if (!first.is_begun) {
    const absl::Status begun = Begin(endpoint, first);
    if (!begun.ok()) {
      Fail(endpoint, absl::CancelledError(
                         absl::StrCat("message refused: ", begun.message())));
    }
    if (!endpoint.why.ok()) return;  // perhaps the handler's doing
    endpoint.held_bytes -= first.held.size();
    if (first.payload_bytes > 0) {
      std::memcpy(first.target.data, first.held.data(), first.payload_bytes);
    }
  }
  const Incoming message = std::move(first);
  endpoint.incoming.pop_front();
  --endpoint.num_begun;
  ++endpoint.taken;
  endpoint.has_asked = false;
  Answer(endpoint);
  if (message.kind == Kind::kEnd) {
    return TakeAcknowledgement(endpoint, message.body);
  }
  handler().OnMessage(
      endpoint.id, {message.header.data(), message.header_bytes},
      {message.target.data, message.payload_bytes, message.target.device});
}

// Whoever has closed its side hears nothing more; the peer need not wait.
void ResendContext::TakeUnheard(Endpoint& endpoint, const Prefix& prefix) {
  if (!IsBefore(prefix.sequence, endpoint.taken)) {
    endpoint.taken = prefix.sequence + 1;
  }
  if (prefix.kind == Kind::kEnd) TakeAcknowledgement(endpoint, prefix.body);
  Answer(endpoint);
}

// Others came, and the next one did not: once, as it may come yet.
void ResendContext::AskIfLacking(Endpoint& endpoint) {
  if (endpoint.has_asked || endpoint.incoming.empty()) return;
  if (endpoint.incoming.front().state != State::kLacking) return;
  endpoint.has_asked = true;
  AskAgain(endpoint);
}

void ResendContext::AskAgain(Endpoint& endpoint) {
  endpoint.wants_again = true;
  endpoint.lacking = endpoint.taken;
  Answer(endpoint);
}

// At the end of this Progress, or at once after many.
void ResendContext::Answer(Endpoint& endpoint) {
  if (endpoint.taken - endpoint.told >= kTakenPerAnswer) {
    return SendAnswer(endpoint);
  }
  if (std::exchange(endpoint.is_due, true)) return;
  due_.push_back(endpoint.id);
}

uint32_t ResendContext::HereBits(const Endpoint& endpoint) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kAckedBits; ++i) {
    if (i + 1 >= endpoint.incoming.size()) break;
    const bool is_here = endpoint.incoming[i + 1].state == State::kHere;
    bits |= static_cast<uint32_t>(is_here) << i;
  }
  return bits;
}

void ResendContext::SendAnswer(Endpoint& endpoint) {
  if (endpoint.is_closed) return;
  endpoint.told = endpoint.taken;
  Prefix prefix = {.kind = Kind::kTaken, .sequence = endpoint.taken};
  const bool wants_again = std::exchange(endpoint.wants_again, false);
  if (wants_again && endpoint.lacking == endpoint.taken) {
    prefix = {Kind::kAgain, endpoint.taken, HereBits(endpoint)};
  }
  std::array<std::byte, kPrefixBytes> header;
  PackPrefix(prefix, {}, header.data());
  (void)inner().Send(endpoint.id, {header.data(), header.size()}, {},
                     [](const absl::Status&) {});
}

}  // namespace telegrad::resend
