#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/decorators/multirail/multirail_context.h"
#include "transport/send_checks.h"

namespace telegrad::multirail {
namespace {

// Of larger ones buffers are kept: fresh pages cost more than the copy.
constexpr size_t kSmallHeldBytes = kPartBytes / 4;
constexpr size_t kMaxSpare = 64;

}  // namespace

absl::StatusOr<Bytes> MultiRailContext::OnHeader(EndpointId from,
                                                 ConstBytes header,
                                                 size_t payload_bytes) {
  const Place& place = places_[from];
  if (place.endpoint == nullptr) {
    RETURN_IF_ERROR(ParseHello(header, payload_bytes).status());
    return Bytes();
  }
  Endpoint& endpoint = *place.endpoint;
  if (endpoint.state == State::kClosing) return endpoint.why;
  if (IsAck(header) || IsAsk(header)) {
    const absl::Status taken = IsAck(header)
                                   ? HandleAck(endpoint, header, payload_bytes)
                                   : TakeAsk(endpoint, header, payload_bytes);
    if (!taken.ok()) return Refuse(endpoint, taken);
    return Bytes();
  }
  if (endpoint.state == State::kFlushing) {
    RETURN_IF_ERROR(ParsePart(header, payload_bytes).status());
    return Discard(payload_bytes);
  }
  absl::StatusOr<Bytes> target = BeginPart(endpoint, header, payload_bytes);
  if (!target.ok()) return Refuse(endpoint, target.status());
  return target;
}

// For all such parts at once.
Bytes MultiRailContext::Discard(size_t part_bytes) {
  if (discarded_.size() == 0) discarded_ = Buffer(kPartBytes);
  return {discarded_.data(), part_bytes};
}

absl::StatusOr<Bytes> MultiRailContext::BeginPart(Endpoint& endpoint,
                                                  ConstBytes header,
                                                  size_t part_bytes) {
  ASSIGN_OR_RETURN(const Part part, ParsePart(header, part_bytes));
  ASSIGN_OR_RETURN(Incoming * message, FindMessage(endpoint, part, header));
  if (message->begun.test(part.index)) {
    return absl::InvalidArgumentError("a part comes twice");
  }
  message->begun.set(part.index);
  RETURN_IF_ERROR(BeginMessages(endpoint));
  if (!IsReceiving(endpoint))
    return Discard(part_bytes);  // the handler's doing
  const uint32_t place = part.sequence - endpoint.heard.messages;
  if (place >= endpoint.num_begun) {
    return Hold(endpoint, *message, part.index, part_bytes);
  }
  return Bytes(message->target.data + part.index * kPartBytes, part_bytes);
}

// That the part belongs to, whose header is known now.
absl::StatusOr<MultiRailContext::Incoming*> MultiRailContext::FindMessage(
    Endpoint& endpoint, const Part& part, ConstBytes header) {
  const uint32_t place = part.sequence - endpoint.heard.messages;
  if (place >= kMaxLeadMessages) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", part.sequence, " comes when ",
                     endpoint.heard.messages, " is due"));
  }
  if (endpoint.incoming.size() <= place) endpoint.incoming.resize(place + 1);
  std::unique_ptr<Incoming>& found = endpoint.incoming[place];
  const ConstBytes rest(header.data + kPrefixBytes, header.size - kPrefixBytes);
  if (found == nullptr) {
    found = std::make_unique<Incoming>();
    found->header_bytes = rest.size;
    std::copy_n(rest.data, rest.size, found->header.data());
    found->payload_bytes = part.payload_bytes;
  }
  Incoming& message = *found;
  if (message.payload_bytes != part.payload_bytes ||
      !std::equal(rest.data, rest.data + rest.size, message.header.data(),
                  message.header.data() + message.header_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts of two messages ", part.sequence));
  }
  return &message;
}

// In the order of sending, as far as their headers are known.
absl::Status MultiRailContext::BeginMessages(Endpoint& endpoint) {
  while (endpoint.num_begun < endpoint.incoming.size() &&
         endpoint.incoming[endpoint.num_begun] != nullptr &&
         IsReceiving(endpoint)) {
    RETURN_IF_ERROR(
        BeginMessage(endpoint, *endpoint.incoming[endpoint.num_begun]));
  }
  return absl::OkStatus();
}

absl::Status MultiRailContext::BeginMessage(Endpoint& endpoint,
                                            Incoming& message) {
  ++num_events_;
  ASSIGN_OR_RETURN(message.target, handler().OnHeader(endpoint.id,
                                                      {message.header.data(),
                                                       message.header_bytes},
                                                      message.payload_bytes));
  RETURN_IF_ERROR(CheckTarget(message.target, message.payload_bytes));
  ++endpoint.num_begun;
  for (auto held = message.held.begin(); held != message.held.end();) {
    held = held->second.has_arrived ? PlaceHeld(endpoint, message, held)
                                    : std::next(held);
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> MultiRailContext::Hold(Endpoint& endpoint,
                                             Incoming& message, size_t index,
                                             size_t part_bytes) {
  if (endpoint.heard.weight == 0) {
    return absl::InvalidArgumentError(
        "a message out of its turn before the first was heard");
  }
  Held held = {.buffer = GetBuffer(part_bytes), .size = part_bytes};
  // Buffers are at most four times as large as what is in them.
  const uint64_t weight = Weight(held.buffer.size());
  if (endpoint.weight_held + weight > 4 * MaxLead(endpoint.heard.weight)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(endpoint.weight_held,
                     " bytes wait for a message on another connection"));
  }
  endpoint.weight_held += weight;
  const Bytes place(held.buffer.data(), part_bytes);
  message.held[index] = std::move(held);
  return place;
}

Buffer MultiRailContext::GetBuffer(size_t bytes) {
  if (bytes <= kSmallHeldBytes) return Buffer(bytes);
  if (spare_.empty()) return Buffer(kPartBytes);
  Buffer buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

void MultiRailContext::PutBuffer(Buffer buffer) {
  if (buffer.size() == kPartBytes && spare_.size() < kMaxSpare) {
    spare_.push_back(std::move(buffer));
  }
}

// To where it belongs; returns the next one.
MultiRailContext::HeldParts::iterator MultiRailContext::PlaceHeld(
    Endpoint& endpoint, Incoming& message, HeldParts::iterator held) {
  Held& part = held->second;
  if (part.size > 0) {
    std::memcpy(message.target.data + held->first * kPartBytes,
                part.buffer.data(), part.size);
  }
  endpoint.weight_held -= Weight(part.buffer.size());
  PutBuffer(std::move(part.buffer));
  ++message.num_arrived;
  return message.held.erase(held);
}

void MultiRailContext::OnMessage(EndpointId from, ConstBytes header,
                                 Bytes payload) {
  Place& place = places_[from];
  if (place.endpoint == nullptr) {
    const absl::StatusOr<Hello> hello = ParseHello(header, payload.size);
    if (hello.ok()) Join(from, place, *hello);
    return;
  }
  // What is no part was taken when it began.
  const absl::StatusOr<Part> part = ParsePart(header, payload.size);
  if (part.ok()) EndPart(*place.endpoint, *part);
}

void MultiRailContext::EndPart(Endpoint& endpoint, const Part& part) {
  const uint32_t place = part.sequence - endpoint.heard.messages;
  if (!IsReceiving(endpoint) || place >= endpoint.incoming.size()) return;
  Incoming& message = *endpoint.incoming[place];  // since its part began
  const auto held = message.held.find(part.index);
  if (held == message.held.end()) {
    ++message.num_arrived;
  } else {
    held->second.has_arrived = true;
    if (place >= endpoint.num_begun) return;
    PlaceHeld(endpoint, message, held);
  }
  Deliver(endpoint);
}

// Whoever has closed its side hears nothing more.
bool MultiRailContext::IsReceiving(const Endpoint& endpoint) {
  return endpoint.state == State::kOpen || endpoint.state == State::kLost;
}

void MultiRailContext::Deliver(Endpoint& endpoint) {
  while (endpoint.num_begun > 0 && IsReceiving(endpoint)) {
    const Incoming& first = *endpoint.incoming.front();
    if (first.num_arrived < NumParts(first.payload_bytes)) return;
    const std::unique_ptr<Incoming> message =
        std::move(endpoint.incoming.front());
    endpoint.incoming.pop_front();
    --endpoint.num_begun;
    ++endpoint.heard.messages;
    endpoint.heard.weight += Weight(message->payload_bytes);
    SendAck(endpoint);
    ++num_events_;
    handler().OnMessage(
        endpoint.id, {message->header.data(), message->header_bytes},
        {message->target.data, message->payload_bytes, message->target.device});
  }
}

// Often enough that a sender which is ahead by a lot need not stop.
void MultiRailContext::SendAck(Endpoint& endpoint) {
  const ReceivedSoFar& heard = endpoint.heard;
  const uint64_t told = endpoint.told.weight;
  const bool is_due = told == 0 || heard.weight - told >= MaxLead(told) / 4 ||
                      endpoint.asked_for == heard.messages;
  if (!is_due) return;
  std::array<std::byte, kPrefixBytes> text;
  PackAck(heard, text.data());
  if (SendBare(endpoint, text)) endpoint.told = heard;
}

// A sender asks after all that it has begun, some of which may be on its way.
absl::Status MultiRailContext::TakeAsk(Endpoint& endpoint, ConstBytes header,
                                       size_t payload_bytes) {
  ASSIGN_OR_RETURN(endpoint.asked_for, ParseAsk(header, payload_bytes));
  if (endpoint.heard.weight > 0 &&
      endpoint.asked_for == endpoint.heard.messages) {
    SendAck(endpoint);
  }
  return absl::OkStatus();
}

absl::Status MultiRailContext::HandleAck(Endpoint& endpoint, ConstBytes header,
                                         size_t payload_bytes) {
  ASSIGN_OR_RETURN(const ReceivedSoFar heard, ParseAck(header, payload_bytes));
  ReceivedSoFar& known = endpoint.heard_by_peer;
  const uint32_t more = heard.messages - known.messages;
  constexpr uint32_t kStale = uint32_t{1} << 31;  // passed on its way
  if (more >= kStale) return absl::OkStatus();
  if (more > endpoint.next_to_send - known.messages ||
      heard.weight > endpoint.weight_begun || heard.weight < known.weight) {
    return absl::InvalidArgumentError("more was heard than was sent");
  }
  known = heard;
  Dispatch(endpoint);
  return absl::OkStatus();
}

}  // namespace telegrad::multirail
