#include "transport/ofi/sender.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/endian.h"
#include "base/process_memory.h"
#include "transport/ofi/provider.h"
#include "transport/send_checks.h"

namespace telegrad::ofi {
namespace {

// One endpoint's share, so that one slow peer does not take all slots.
constexpr size_t kMaxSlotsInFlight = 16;

}  // namespace

absl::StatusOr<Registration> Sender::Register(const Endpoint& endpoint,
                                              ConstBytes payload) {
  if (!IsOnDevice(payload)) return Registration();
  if (!fabric_.has_device_memory()) return CheckOnHost("ofi", payload.device);
  if (!lanes_.IsAgreed(endpoint) || payload.size < fabric_.large_bytes()) {
    return absl::UnimplementedError(
        "transport ofi takes no payload on a device before both sides have "
        "agreed on lanes, and none that is small");
  }
  absl::StatusOr<Registration> made = fabric_.Register(payload);
  if (made.ok()) return made;
  return absl::UnimplementedError(made.status().message());
}

void Sender::Send(Endpoint& endpoint, ConstBytes header, ConstBytes payload,
                  Registration registration, SendDone done) {
  Outgoing& message = Enqueue(endpoint, Kind::kData, /*is_urgent=*/false);
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  message.payload = payload;
  message.registration = std::move(registration);
  message.done = std::move(done);
  if (turns_.empty() && endpoint.has_greeted) Pump(endpoint);
  Start(endpoint);
}

void Sender::SendGoodbye(Endpoint& endpoint) {
  Enqueue(endpoint, Kind::kGoodbye, /*is_urgent=*/false);
  Start(endpoint);
}

void Sender::SendUrgent(Endpoint& endpoint, Kind kind, ConstBytes header) {
  Outgoing& message = Enqueue(endpoint, kind, /*is_urgent=*/true);
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  Start(endpoint);
}

Outgoing& Sender::Enqueue(Endpoint& endpoint, Kind kind, bool is_urgent) {
  const auto place = is_urgent ? endpoint.next : endpoint.messages.end();
  const auto added = endpoint.messages.emplace(place);
  added->kind = kind;
  added->self = added;
  if (is_urgent || endpoint.next == endpoint.messages.end()) {
    endpoint.next = added;
  }
  return *added;
}

void Sender::Start(Endpoint& endpoint) {
  if (!endpoint.has_greeted || endpoint.next == endpoint.messages.end()) return;
  turns_.Add(endpoint);
}

// Whoever could not send all has another turn.
void Sender::TakeTurns() {
  is_stalled_ = false;
  turns_.Take([this](EndpointId id) { return endpoints_.Find(id); },
              [this](Endpoint& endpoint) {
                if (Pump(endpoint)) Start(endpoint);
              });
}

// False: all is sent, or a completion will call Start.
bool Sender::Pump(Endpoint& endpoint) {
  if (endpoint.is_fragile && endpoint.HasPeerLeft()) {
    endpoint.has_ended = true;
    endpoints_.Fail(
        endpoint,
        absl::UnavailableError("the peer is gone: its connection has ended"));
    return false;
  }
  while (endpoint.state != State::kFailed &&
         endpoint.next != endpoint.messages.end()) {
    if (!PrepareLarge(endpoint)) return false;
    if (IsOnDevice(endpoint.next->payload) && !endpoint.next->is_large) {
      is_stalled_ = true;  // records cannot take it
      return endpoint.state != State::kFailed;
    }
    if (endpoint.num_slots >= kMaxSlotsInFlight) return false;
    Slot* slot = fabric_.TakeSlot();
    if (slot == nullptr) return true;
    if (!PumpOne(endpoint, slot)) return true;
  }
  return false;
}

bool Sender::PumpOne(Endpoint& endpoint, Slot* slot) {
  Outgoing& message = *endpoint.next;
  Record record{.token = endpoint.peer_token,
                .to = endpoint.peer_id,
                .sequence = endpoint.next_to_send,
                .payload_bytes = static_cast<uint32_t>(message.payload.size),
                .offset = static_cast<uint32_t>(message.offset),
                .kind = message.is_large ? Kind::kLarge : message.kind,
                .header = {},
                .data = {}};
  if (!message.is_begun) {
    record.header = {message.header.data(), message.header_bytes};
  }
  size_t used = PackRecord(record, slot->bytes);
  size_t part = 0;
  if (message.is_large) {
    if (fabric_.is_shm()) {
      StoreLittleEndian(slot->bytes + used,
                        reinterpret_cast<uint64_t>(message.payload.data));
      used += kPlaceBytes;
    }
    part = message.payload.size;
  } else {
    part = std::min(message.payload.size - message.offset,
                    fabric_.slot_bytes() - used);
    std::copy_n(message.payload.data + message.offset, part,
                slot->bytes + used);
    used += part;
  }
  slot->endpoint = endpoint.id;
  slot->message = &message;
  const int error = fabric_.Send(slot, used, endpoint.peer);
  if (error != 0) {
    fabric_.ReturnSlot(slot);
    is_stalled_ = true;
    if (error != FI_EAGAIN) {
      endpoints_.Fail(endpoint, FabricError("the peer is gone: send", error));
    }
    return false;
  }
  ++endpoint.next_to_send;
  ++endpoint.num_slots;
  ++message.num_pending;
  message.is_begun = true;
  message.offset += part;
  if (message.offset == message.payload.size) {
    message.is_in_slots = true;
    ++endpoint.next;
  }
  return true;
}

// False: there are enough on the way; the peer says when it has taken one.
bool Sender::PrepareLarge(Endpoint& endpoint) {
  const auto is_large = [&] {
    const Outgoing& message = *endpoint.next;
    return message.kind == Kind::kData && !message.is_begun &&
           !message.is_large && message.payload.size >= fabric_.large_bytes();
  };
  if (!is_large()) return true;
  if (!endpoint.has_offered) {
    const std::optional<std::string> offer = lanes_.Offer(endpoint);
    if (offer.has_value()) {
      SendUrgent(endpoint, Kind::kOffer, {offer->data(), offer->size()});
    }
  }
  if (!is_large() || !lanes_.IsAgreed(endpoint)) return true;
  if (endpoint.num_untaken >= kMaxLarge) return false;
  SendLarge(endpoint, *endpoint.next);
  return true;
}

// Without success, while the lane connects above all, it goes in records.
void Sender::SendLarge(Endpoint& endpoint, Outgoing& message) {
  if (fabric_.is_shm()) {
    if (!IsReadableByProcesses(message.payload)) return;
    endpoint.exposed.push_back(&message);
  } else {
    Slot* slot = fabric_.TakeLaneSlot(Role::kLaneSend, message.payload,
                                      message.registration);
    if (slot == nullptr) return;
    slot->endpoint = endpoint.id;
    slot->message = &message;
    const uint64_t tag = endpoint.peer_token + endpoint.next_tag_to_send;
    const int error = endpoint.send_lane->Send(slot, message.payload,
                                               endpoint.peer_lane, tag);
    if (error != 0) {
      fabric_.ReturnSlot(slot);
      if (!IsOnDevice(message.payload) || error == FI_EAGAIN) return;
      return endpoints_.Fail(endpoint,
                             FabricError("send from a device", error));
    }
    ++endpoint.next_tag_to_send;
  }
  message.is_large = true;
  ++num_large_;
  ++message.num_pending;
  ++endpoint.num_untaken;
}

void Sender::HandleSent(Slot* slot, int error) {
  Endpoint* endpoint = endpoints_.Find(slot->endpoint);
  auto* message = static_cast<Outgoing*>(slot->message);
  const Role role = slot->role;
  fabric_.ReturnSlot(slot);
  if (endpoint == nullptr || message == nullptr) return;
  if (role == Role::kSend) --endpoint->num_slots;
  if (error != 0) {
    endpoints_.Fail(*endpoint, FabricError("the peer is gone: send", error));
    return;
  }
  FinishPart(*endpoint, *message);
}

void Sender::FinishPart(Endpoint& endpoint, Outgoing& message) {
  if (--message.num_pending == 0 && message.is_in_slots) {
    done_.Add(std::move(message.done), absl::OkStatus());
    endpoint.messages.erase(message.self);
  }
  Start(endpoint);
}

void Sender::HandleTaken(Endpoint& endpoint) {
  if (endpoint.num_untaken == 0) {
    return endpoints_.FailProtocol(endpoint, "thanks for nothing");
  }
  --endpoint.num_untaken;
  Start(endpoint);
  if (!fabric_.is_shm()) return;
  Outgoing& message = *endpoint.exposed.front();
  endpoint.exposed.pop_front();
  FinishPart(endpoint, message);
}

void Sender::Refuse(Endpoint& endpoint) {
  for (Outgoing& message : endpoint.messages) {
    done_.Add(std::move(message.done), endpoint.why);
  }
  endpoint.messages.clear();
}

}  // namespace telegrad::ofi
