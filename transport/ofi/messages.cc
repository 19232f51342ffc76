#include <rdma/fi_errno.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/ofi/ofi_context.h"
#include "transport/send_checks.h"

// Messages into records.
namespace telegrad::ofi {
namespace {

// Of one endpoint, so that one slow peer does not take all slots.
constexpr size_t kMaxSlotsInFlight = 16;

}  // namespace

absl::Status OfiContext::Send(EndpointId to, ConstBytes header,
                              ConstBytes payload, SendDone done) {
  Endpoint* endpoint = endpoints_.Find(to);
  if (endpoint == nullptr || endpoint->state != State::kOpen ||
      !endpoint->is_announced) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, MaxHeaderBytes(options_)));
  ASSIGN_OR_RETURN(Registration registration,
                   RegisterToSend(*endpoint, payload));
  Outgoing& message = Enqueue(*endpoint, Kind::kData, /*is_urgent=*/false);
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  message.payload = payload;
  message.registration = std::move(registration);
  message.done = std::move(done);
  if (pumping_.empty() && endpoint->has_greeted) Pump(*endpoint);
  StartPumping(*endpoint);
  return absl::OkStatus();
}

// Urgent: before what is not yet in slots.
Outgoing& OfiContext::Enqueue(Endpoint& endpoint, Kind kind, bool is_urgent) {
  const auto place = is_urgent ? endpoint.next : endpoint.messages.end();
  const auto added = endpoint.messages.emplace(place);
  added->kind = kind;
  added->self = added;
  if (is_urgent || endpoint.next == endpoint.messages.end()) {
    endpoint.next = added;
  }
  return *added;
}

void OfiContext::StartPumping(Endpoint& endpoint) {
  if (endpoint.is_pumping || !endpoint.has_greeted ||
      endpoint.next == endpoint.messages.end()) {
    return;
  }
  endpoint.is_pumping = true;
  pumping_.push_back(endpoint.id);
}

// In turns: whoever could not send all goes to the back.
void OfiContext::PumpAll() {
  is_stalled_ = false;
  for (size_t left = pumping_.size(); left > 0; --left) {
    const EndpointId id = pumping_.front();
    pumping_.pop_front();
    Endpoint* endpoint = endpoints_.Find(id);
    if (endpoint == nullptr) continue;
    endpoint->is_pumping = false;
    if (Pump(*endpoint)) StartPumping(*endpoint);
  }
}

// False: all is sent, or a completion will call StartPumping.
bool OfiContext::Pump(Endpoint& endpoint) {
  if (endpoint.is_fragile && HasPeerLeft(endpoint)) {
    endpoint.has_ended = true;
    Fail(endpoint,
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
    Slot* slot = fabric_->TakeSlot();
    if (slot == nullptr) return true;
    if (!PumpOne(endpoint, slot)) return true;
  }
  return false;
}

bool OfiContext::PumpOne(Endpoint& endpoint, Slot* slot) {
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
    used += PackPlace(message, slot->bytes + used);
    part = message.payload.size;
  } else {
    part = std::min(message.payload.size - message.offset,
                    fabric_->slot_bytes() - used);
    std::copy_n(message.payload.data + message.offset, part,
                slot->bytes + used);
    used += part;
  }
  slot->endpoint = endpoint.id;
  slot->message = &message;
  const int error = fabric_->Send(slot, used, endpoint.peer);
  if (error != 0) {
    fabric_->ReturnSlot(slot);
    is_stalled_ = true;
    if (error != FI_EAGAIN) {
      Fail(endpoint, FabricError("the peer is gone: send", error));
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

void OfiContext::HandleSent(Slot* slot, int error) {
  Endpoint* endpoint = endpoints_.Find(slot->endpoint);
  auto* message = static_cast<Outgoing*>(slot->message);
  const Role role = slot->role;
  fabric_->ReturnSlot(slot);
  if (endpoint == nullptr || message == nullptr) return;
  if (role == Role::kSend) --endpoint->num_slots;
  if (error != 0) {
    Fail(*endpoint, FabricError("the peer is gone: send", error));
    return;
  }
  FinishPart(*endpoint, *message);
}

void OfiContext::FinishPart(Endpoint& endpoint, Outgoing& message) {
  if (--message.num_pending == 0 && message.is_in_slots) {
    done_.Add(std::move(message.done), absl::OkStatus());
    endpoint.messages.erase(message.self);
  }
  StartPumping(endpoint);
}

}  // namespace telegrad::ofi
