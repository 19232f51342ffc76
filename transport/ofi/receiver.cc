#include "transport/ofi/receiver.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/process_memory.h"
#include "transport/ofi/provider.h"
#include "transport/send_checks.h"

namespace telegrad::ofi {
namespace {

// Completions may come out of order; a peer whose records are further apart
// than its slots allow is broken.
constexpr uint32_t kReorderWindow = 256;
// Messages that may wait behind a large one.
constexpr size_t kMaxIncoming = 65536;

}  // namespace

void Receiver::HandleReceived(ConstBytes bytes) {
  const std::optional<Record> record = ParseRecord(bytes, max_header_bytes_);
  Endpoint* endpoint =
      record.has_value() ? endpoints_.Find(record->to) : nullptr;
  if (endpoint == nullptr || endpoint->token != record->token) {
    ++num_strays_;  // whoever sent it is not a peer, or not any more
    return;
  }
  if (endpoint->state == State::kFailed || !endpoint->is_announced) return;
  TakeInOrder(*endpoint, *record, bytes);
}

void Receiver::TakeInOrder(Endpoint& endpoint, const Record& record,
                           ConstBytes bytes) {
  const uint32_t ahead = record.sequence - endpoint.next_to_hear;
  if (ahead != 0) {
    const bool is_new =
        ahead < kReorderWindow &&
        endpoint.early
            .try_emplace(record.sequence, bytes.data, bytes.data + bytes.size)
            .second;
    if (!is_new) endpoints_.FailProtocol(endpoint, "a record out of order");
    return;
  }
  Take(endpoint, record);
  while (!endpoint.early.empty() && endpoint.state != State::kFailed) {
    const auto first = endpoint.early.find(endpoint.next_to_hear);
    if (first == endpoint.early.end()) return;
    const std::vector<std::byte> kept = std::move(first->second);
    endpoint.early.erase(first);
    Take(endpoint, *ParseRecord({kept.data(), kept.size()}, max_header_bytes_));
  }
}

void Receiver::Take(Endpoint& endpoint, const Record& record) {
  ++endpoint.next_to_hear;
  switch (record.kind) {
    case Kind::kData:
      if (endpoint.state == State::kOpen) TakeData(endpoint, record);
      return;
    case Kind::kLarge:
      return TakeLarge(endpoint, record);
    case Kind::kGoodbye:
      if (IsInMessage(endpoint)) {
        return endpoints_.FailProtocol(endpoint, "a goodbye within a message");
      }
      endpoint.incoming.push_back({.kind = Kind::kGoodbye, .is_whole = true});
      return Deliver(endpoint);
    case Kind::kGoodbyeAck:
      endpoint.is_acknowledged = true;
      return;
    case Kind::kOffer:
      if (const auto accept = lanes_.TakeOffer(endpoint, record.header)) {
        sender_.SendUrgent(endpoint, Kind::kAccept,
                           {accept->data(), accept->size()});
      }
      return;
    case Kind::kAccept:
      return lanes_.TakeAccept(endpoint, record.header);
    case Kind::kTaken:
      return sender_.HandleTaken(endpoint);
  }
}

bool Receiver::IsInMessage(const Endpoint& endpoint) {
  if (endpoint.incoming.empty() || endpoint.state != State::kOpen) return false;
  const Incoming& last = endpoint.incoming.back();
  return last.kind == Kind::kData && !last.is_whole;
}

// Null: the message was refused, or the endpoint is not open.
Incoming* Receiver::Begin(Endpoint& endpoint, const Record& record) {
  if (endpoint.state != State::kOpen) return nullptr;
  if (endpoint.incoming.size() >= kMaxIncoming) {
    endpoints_.FailProtocol(endpoint,
                            "too many messages behind one that does not come");
    return nullptr;
  }
  ++num_events_;
  is_in_large_header_ = record.kind == Kind::kLarge && !fabric_.is_shm();
  absl::StatusOr<Bytes> target =
      handler_.OnHeader(endpoint.id, record.header, record.payload_bytes);
  is_in_large_header_ = false;
  auto registration = std::exchange(asked_for_, std::nullopt);
  if (endpoint.state != State::kOpen) return nullptr;
  CheckTarget(target, record.payload_bytes, registration.has_value());
  if (!target.ok()) {
    endpoints_.Fail(endpoint,
                    absl::CancelledError(absl::StrCat(
                        "message refused: ", target.status().message())));
    return nullptr;
  }
  Incoming& message = endpoint.incoming.emplace_back();
  message.kind = record.kind;
  std::copy_n(record.header.data, record.header.size, message.header.data());
  message.header_bytes = record.header.size;
  message.payload_bytes = record.payload_bytes;
  message.target = *target;
  if (registration.has_value()) message.registration = *std::move(registration);
  return &message;
}

void Receiver::TakeData(Endpoint& endpoint, const Record& record) {
  const bool is_begun = IsInMessage(endpoint);
  if (record.offset == 0 && !is_begun) {
    if (Begin(endpoint, record) == nullptr) return;
  } else if (!is_begun || record.offset != endpoint.incoming.back().received ||
             record.payload_bytes != endpoint.incoming.back().payload_bytes) {
    return endpoints_.FailProtocol(endpoint, "a record of another message");
  }
  Incoming& message = endpoint.incoming.back();
  std::copy_n(record.data.data, record.data.size,
              message.target.data + message.received);
  message.received += record.data.size;
  message.is_whole = message.received == message.payload_bytes;
  if (message.is_whole) Deliver(endpoint);
}

// In their order: small messages wait behind a large one. After Close nothing
// is heard but the goodbye, once libfabric has no memory of the user any more.
void Receiver::Deliver(Endpoint& endpoint) {
  while (!endpoint.incoming.empty() && endpoint.state != State::kFailed) {
    Incoming& message = endpoint.incoming.front();
    if (message.kind == Kind::kGoodbye) {
      endpoint.incoming.pop_front();
      ReceiveGoodbye(endpoint);
      continue;
    }
    const bool is_open = endpoint.state == State::kOpen;
    if (is_open ? !message.is_whole : message.is_in_lane) return;
    if (is_open) {
      ++num_events_;
      handler_.OnMessage(
          endpoint.id, {message.header.data(), message.header_bytes},
          {message.target.data, message.payload_bytes, message.target.device});
    }
    endpoint.incoming.pop_front();
  }
}

// The answer overtakes messages: whoever has said goodbye hears none of them.
void Receiver::ReceiveGoodbye(Endpoint& endpoint) {
  if (endpoint.state == State::kOpen) {
    endpoints_.BeginClosing(
        endpoint, State::kPeerClosed,
        absl::UnavailableError("the peer has closed the connection"));
  }
  sender_.SendUrgent(endpoint, Kind::kGoodbyeAck);
}

bool Receiver::TakesNow(Bytes target) {
  if (!IsOnDevice(target)) return true;
  if (!is_in_large_header_ || !fabric_.has_device_memory()) return false;
  absl::StatusOr<Registration> made = fabric_.Register(target);
  if (!made.ok()) return false;
  asked_for_ = *std::move(made);
  return true;
}

void Receiver::TakeLarge(Endpoint& endpoint, const Record& record) {
  const bool is_agreed =
      endpoint.has_accepted &&
      record.data.size == (fabric_.is_shm() ? kPlaceBytes : 0);
  if (!is_agreed || IsInMessage(endpoint) ||
      endpoint.num_large_incoming >= kMaxLarge) {
    return endpoints_.FailProtocol(endpoint,
                                   "a large message that was not agreed on");
  }
  Incoming* message = Begin(endpoint, record);
  if (endpoint.state == State::kFailed) return;
  if (fabric_.is_shm()) return ReadFromPeer(endpoint, message, record.data);
  ReceiveOnLane(endpoint, message, record.payload_bytes);
}

// What libfabric's shm does too, but without holding a lock of the peer's that
// stays locked if we are killed. Null: nobody wants it any more.
void Receiver::ReadFromPeer(Endpoint& endpoint, Incoming* message,
                            ConstBytes place) {
  if (message != nullptr) {
    const bool is_read = ReadProcess(
        endpoint.peer_process, {message->target.data, message->payload_bytes},
        LoadLittleEndian<uint64_t>(place.data));
    // A sender that has given up disconnects before it reuses its memory.
    if (!is_read || endpoint.HasPeerLeft()) {
      return endpoints_.Fail(
          endpoint,
          absl::UnavailableError("the peer is gone: its memory cannot "
                                 "be read"));
    }
    message->is_whole = true;
  }
  sender_.SendUrgent(endpoint, Kind::kTaken);
  Deliver(endpoint);
}

void Receiver::ReceiveOnLane(Endpoint& endpoint, Incoming* message,
                             size_t num_bytes) {
  if (message == nullptr) {  // so that the goodbye behind it can be heard
    if (endpoint.scratch.size() == 0) {
      absl::StatusOr<Buffer> scratch = Buffer::Create(kMaxPayloadBytes);
      if (!scratch.ok()) return endpoints_.Fail(endpoint, scratch.status());
      endpoint.scratch = *std::move(scratch);
    }
    message = &endpoint.incoming.emplace_back();
    message->kind = Kind::kLarge;
    message->payload_bytes = num_bytes;
    message->target = endpoint.scratch.view();
  }
  const Bytes target = {message->target.data, num_bytes,
                        message->target.device};
  Slot* slot =
      fabric_.TakeLaneSlot(Role::kLaneReceive, target, message->registration);
  if (slot == nullptr) {
    return endpoints_.Fail(
        endpoint,
        absl::ResourceExhaustedError("the memory for a large message cannot be "
                                     "registered"));
  }
  slot->endpoint = endpoint.id;
  slot->message = message;
  const uint64_t tag = endpoint.token + endpoint.next_tag_to_hear;
  const int error = endpoint.receive_lane->Receive(slot, target, tag);
  if (error != 0) {
    fabric_.ReturnSlot(slot);
    return endpoints_.Fail(endpoint, FabricError("receive", error));
  }
  ++endpoint.next_tag_to_hear;
  ++endpoint.num_large_incoming;
  message->is_in_lane = true;
}

void Receiver::HandleLaneReceived(const Completion& completion) {
  Endpoint* endpoint = endpoints_.Find(completion.slot->endpoint);
  auto* message = static_cast<Incoming*>(completion.slot->message);
  fabric_.ReturnSlot(completion.slot);
  if (endpoint == nullptr || message == nullptr) return;
  --endpoint->num_large_incoming;
  message->is_in_lane = false;
  if (completion.error != 0) {
    return endpoints_.Fail(
        *endpoint, FabricError("the peer is gone: receive", completion.error));
  }
  if (completion.num_bytes != message->payload_bytes) {
    return endpoints_.FailProtocol(
        *endpoint, absl::StrCat("a large message of ", completion.num_bytes,
                                " bytes where ", message->payload_bytes,
                                " were announced"));
  }
  message->is_whole = true;
  sender_.SendUrgent(*endpoint, Kind::kTaken);
  Deliver(*endpoint);
}

}  // namespace telegrad::ofi
