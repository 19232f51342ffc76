#include <rdma/fi_errno.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/ofi/ofi_context.h"

// Messages into records and back.
namespace telegrad::ofi {
namespace {

// Of one endpoint, so that one slow peer does not take all slots.
constexpr size_t kMaxSlotsInFlight = 16;
// Completions may come out of order; a peer whose records are further apart
// than its slots allow is broken.
constexpr uint32_t kReorderWindow = 256;

}  // namespace

absl::Status OfiContext::Send(EndpointId to, ConstBytes header,
                              ConstBytes payload, SendDone done) {
  Endpoint* endpoint = Find(to);
  if (endpoint == nullptr || endpoint->state != State::kOpen ||
      !endpoint->is_announced) {
    return absl::FailedPreconditionError(
        absl::StrCat("send: endpoint ", to, " is not open"));
  }
  if (header.size > kMaxHeaderBytes || payload.size > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "send: header ", header.size, " bytes, payload ", payload.size,
        " bytes; at most ", kMaxHeaderBytes, " and ", kMaxPayloadBytes));
  }
  if (payload.device.kind != DeviceKind::kCpu) {
    return absl::UnimplementedError("transport ofi takes host memory only");
  }
  Outgoing& message = Enqueue(*endpoint, Kind::kData, /*is_urgent=*/false);
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  message.payload = payload;
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
    Endpoint* endpoint = Find(id);
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
                .kind = message.kind,
                .header = {},
                .data = {}};
  if (!message.is_begun) {
    record.header = {message.header.data(), message.header_bytes};
  }
  const size_t used = PackRecord(record, slot->bytes);
  const size_t part = std::min(message.payload.size - message.offset,
                               fabric_->slot_bytes() - used);
  std::copy_n(message.payload.data + message.offset, part, slot->bytes + used);
  slot->endpoint = endpoint.id;
  slot->message = &message;
  const int error = fabric_->Send(slot, used + part, endpoint.peer);
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
  ++message.num_slots;
  message.is_begun = true;
  message.offset += part;
  if (message.offset == message.payload.size) {
    message.is_in_slots = true;
    ++endpoint.next;
  }
  return true;
}

void OfiContext::HandleCompletions() {
  do {
    completions_.clear();
    fabric_->Poll(&completions_);
    num_moved_ += completions_.size();
    for (const Completion& completion : completions_) {
      Slot* slot = completion.slot;
      if (!slot->is_receive) {
        HandleSent(slot, completion.error);
        continue;
      }
      // An error: too long to be one of our records.
      if (completion.error == 0) {
        HandleReceived({slot->bytes, completion.num_bytes});
      }
      fabric_->Receive(slot);
    }
  } while (!completions_.empty());
}

void OfiContext::HandleSent(Slot* slot, int error) {
  Endpoint* endpoint = Find(slot->endpoint);
  auto* message = static_cast<Outgoing*>(slot->message);
  fabric_->ReturnSlot(slot);
  if (endpoint == nullptr || message == nullptr) return;
  --endpoint->num_slots;
  --message->num_slots;
  if (error != 0) {
    Fail(*endpoint, FabricError("the peer is gone: send", error));
    return;
  }
  if (message->is_in_slots && message->num_slots == 0) {
    if (message->done) {
      done_.push_back({std::move(message->done), absl::OkStatus()});
    }
    endpoint->messages.erase(message->self);
  }
  StartPumping(*endpoint);
}

void OfiContext::HandleReceived(ConstBytes bytes) {
  const std::optional<Record> record = ParseRecord(bytes);
  Endpoint* endpoint = record.has_value() ? Find(record->to) : nullptr;
  if (endpoint == nullptr || endpoint->token != record->token) {
    ++num_strays_;  // whoever sent it is not a peer, or not any more
    return;
  }
  if (endpoint->state == State::kFailed || !endpoint->is_announced) return;
  TakeInOrder(*endpoint, *record, bytes);
}

void OfiContext::TakeInOrder(Endpoint& endpoint, const Record& record,
                             ConstBytes bytes) {
  const uint32_t ahead = record.sequence - endpoint.next_to_hear;
  if (ahead != 0) {
    const bool is_new =
        ahead < kReorderWindow &&
        endpoint.early
            .try_emplace(record.sequence, bytes.data, bytes.data + bytes.size)
            .second;
    if (!is_new) FailProtocol(endpoint, "a record out of order");
    return;
  }
  Take(endpoint, record);
  while (!endpoint.early.empty() && endpoint.state != State::kFailed) {
    const auto first = endpoint.early.find(endpoint.next_to_hear);
    if (first == endpoint.early.end()) return;
    const std::vector<std::byte> kept = std::move(first->second);
    endpoint.early.erase(first);
    Take(endpoint, *ParseRecord({kept.data(), kept.size()}));
  }
}

void OfiContext::Take(Endpoint& endpoint, const Record& record) {
  ++endpoint.next_to_hear;
  switch (record.kind) {
    case Kind::kData:
      if (endpoint.state == State::kOpen) TakeData(endpoint, record);
      return;
    case Kind::kGoodbye:
      return HearGoodbye(endpoint);
    case Kind::kGoodbyeAck:
      endpoint.is_acknowledged = true;
      return;
  }
}

// False: the message was refused.
bool OfiContext::Begin(Endpoint& endpoint, const Record& record) {
  Incoming& message = endpoint.incoming;
  message.is_begun = true;
  std::copy_n(record.header.data, record.header.size, message.header.data());
  message.header_bytes = record.header.size;
  message.payload_bytes = record.payload_bytes;
  message.received = 0;
  ++num_events_;
  absl::StatusOr<Bytes> target = handler_->OnHeader(
      endpoint.id, {message.header.data(), message.header_bytes},
      message.payload_bytes);
  if (endpoint.state != State::kOpen) return false;
  if (target.ok() && (target->size < message.payload_bytes ||
                      target->device.kind != DeviceKind::kCpu)) {
    target = absl::InternalError(
        absl::StrCat("OnHeader gave ", target->size, " bytes for ",
                     message.payload_bytes, ", or no host memory"));
  }
  if (!target.ok()) {
    Fail(endpoint, absl::CancelledError(absl::StrCat(
                       "message refused: ", target.status().message())));
    return false;
  }
  message.target = *target;
  return true;
}

void OfiContext::TakeData(Endpoint& endpoint, const Record& record) {
  Incoming& message = endpoint.incoming;
  if (record.offset == 0 && !message.is_begun) {
    if (!Begin(endpoint, record)) return;
  } else if (!message.is_begun || record.offset != message.received ||
             record.payload_bytes != message.payload_bytes) {
    return FailProtocol(endpoint, "a record of another message");
  }
  std::copy_n(record.data.data, record.data.size,
              message.target.data + message.received);
  message.received += record.data.size;
  if (message.received < message.payload_bytes) return;
  message.is_begun = false;
  ++num_events_;
  handler_->OnMessage(endpoint.id,
                      {message.header.data(), message.header_bytes},
                      {message.target.data, message.payload_bytes});
}

void OfiContext::FailProtocol(Endpoint& endpoint, absl::string_view what) {
  Fail(endpoint, absl::UnavailableError(
                     absl::StrCat("the peer breaks the protocol: ", what)));
}

void OfiContext::CallDone() {
  while (!done_.empty()) {
    const Done due = std::move(done_.front());
    done_.pop_front();
    ++num_events_;
    due.done(due.status);
  }
}

}  // namespace telegrad::ofi
