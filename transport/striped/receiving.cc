#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/striped/striped_context.h"

namespace telegrad::striped {
namespace {

// A peer whose connections are further apart than this is broken.
constexpr uint32_t kReorderWindow = 1 << 12;
constexpr size_t kMaxHeldBytes = 4 * kMaxPayloadBytes;

}  // namespace

absl::StatusOr<Bytes> StripedContext::OnHeader(EndpointId from,
                                               ConstBytes header,
                                               size_t payload_bytes) {
  const Place& place = places_[from];
  if (place.endpoint != nullptr) {
    return BeginPart(*place.endpoint, header, payload_bytes);
  }
  RETURN_IF_ERROR(ParseHello(header, payload_bytes).status());
  return Bytes();
}

absl::StatusOr<Bytes> StripedContext::BeginPart(Endpoint& endpoint,
                                                ConstBytes header,
                                                size_t part_bytes) {
  if (endpoint.state == State::kClosing) {
    return endpoint.unheard.emplace_back(part_bytes).view();
  }
  ASSIGN_OR_RETURN(const Part part, ParsePart(header, part_bytes));
  ASSIGN_OR_RETURN(Incoming * message, FindMessage(endpoint, part, header));
  if (message->begun.test(part.index)) {
    return absl::InvalidArgumentError("a part comes twice");
  }
  message->begun.set(part.index);
  RETURN_IF_ERROR(BeginMessages(endpoint));
  if (endpoint.state == State::kClosing) {
    return endpoint.unheard.emplace_back(part_bytes).view();
  }
  const uint32_t place = part.sequence - endpoint.first_incoming;
  if (place >= endpoint.num_begun) {
    return Hold(endpoint, *message, part.index, part_bytes);
  }
  return Bytes(message->target.data + part.index * kPartBytes, part_bytes);
}

// That the part belongs to, whose header is known now.
absl::StatusOr<StripedContext::Incoming*> StripedContext::FindMessage(
    Endpoint& endpoint, const Part& part, ConstBytes header) {
  const uint32_t place = part.sequence - endpoint.first_incoming;
  if (place >= kReorderWindow) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", part.sequence, " comes when ",
                     endpoint.first_incoming, " is due"));
  }
  while (endpoint.incoming.size() <= place) endpoint.incoming.emplace_back();
  Incoming& message = endpoint.incoming[place];
  const ConstBytes rest(header.data + kPrefixBytes, header.size - kPrefixBytes);
  if (!message.has_header) {
    message.has_header = true;
    message.header_bytes = rest.size;
    std::copy_n(rest.data, rest.size, message.header.data());
    message.payload_bytes = part.payload_bytes;
  }
  if (message.payload_bytes != part.payload_bytes ||
      !std::equal(rest.data, rest.data + rest.size, message.header.data(),
                  message.header.data() + message.header_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts of two messages ", part.sequence));
  }
  return &message;
}

// In the order of sending, as far as their headers are known.
absl::Status StripedContext::BeginMessages(Endpoint& endpoint) {
  while (endpoint.num_begun < endpoint.incoming.size() &&
         endpoint.incoming[endpoint.num_begun].has_header &&
         endpoint.state != State::kClosing) {
    RETURN_IF_ERROR(
        BeginMessage(endpoint, endpoint.incoming[endpoint.num_begun]));
  }
  return absl::OkStatus();
}

absl::Status StripedContext::BeginMessage(Endpoint& endpoint,
                                          Incoming& message) {
  ++num_events_;
  ASSIGN_OR_RETURN(message.target, handler_->OnHeader(endpoint.id,
                                                      {message.header.data(),
                                                       message.header_bytes},
                                                      message.payload_bytes));
  if (message.target.size < message.payload_bytes ||
      message.target.device.kind != DeviceKind::kCpu) {
    return absl::InternalError(
        absl::StrCat("OnHeader gave ", message.target.size, " bytes for ",
                     message.payload_bytes, ", or no host memory"));
  }
  ++endpoint.num_begun;
  for (auto held = message.held.begin(); held != message.held.end();) {
    held = held->second.has_arrived ? PlaceHeld(endpoint, message, held)
                                    : std::next(held);
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> StripedContext::Hold(Endpoint& endpoint,
                                           Incoming& message, size_t index,
                                           size_t part_bytes) {
  if (endpoint.bytes_held + part_bytes > kMaxHeldBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(endpoint.bytes_held,
                     " bytes wait for a message on another connection"));
  }
  endpoint.bytes_held += part_bytes;
  return (message.held[index].bytes = Buffer(part_bytes)).view();
}

// To where it belongs; returns the next one.
StripedContext::HeldParts::iterator StripedContext::PlaceHeld(
    Endpoint& endpoint, Incoming& message, HeldParts::iterator held) {
  const Buffer& bytes = held->second.bytes;
  if (bytes.size() > 0) {
    std::memcpy(message.target.data + held->first * kPartBytes, bytes.data(),
                bytes.size());
  }
  endpoint.bytes_held -= bytes.size();
  ++message.num_arrived;
  return message.held.erase(held);
}

void StripedContext::OnMessage(EndpointId from, ConstBytes header,
                               Bytes payload) {
  Place& place = places_[from];
  if (place.endpoint == nullptr) {
    const absl::StatusOr<Hello> hello = ParseHello(header, payload.size);
    if (hello.ok()) Join(from, place, *hello);
    return;
  }
  const absl::StatusOr<Part> part = ParsePart(header, payload.size);
  if (part.ok()) EndPart(*place.endpoint, *part);
}

void StripedContext::EndPart(Endpoint& endpoint, const Part& part) {
  const uint32_t place = part.sequence - endpoint.first_incoming;
  if (endpoint.state == State::kClosing || place >= endpoint.incoming.size()) {
    return;
  }
  Incoming& message = endpoint.incoming[place];
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
void StripedContext::Deliver(Endpoint& endpoint) {
  while (endpoint.num_begun > 0 && endpoint.state != State::kClosing) {
    Incoming& first = endpoint.incoming.front();
    if (first.num_arrived < NumParts(first.payload_bytes)) return;
    const Incoming message = std::move(first);
    endpoint.incoming.pop_front();
    ++endpoint.first_incoming;
    --endpoint.num_begun;
    ++num_events_;
    handler_->OnMessage(endpoint.id,
                        {message.header.data(), message.header_bytes},
                        {message.target.data, message.payload_bytes});
  }
}

}  // namespace telegrad::striped
