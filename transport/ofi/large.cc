#include <rdma/fi_errno.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "transport/ofi/ofi_context.h"
#include "transport/send_checks.h"

// Payloads that are not copied through slots: from user's memory to user's
// memory over lanes or, in shared memory, read by the receiver.
namespace telegrad::ofi {
namespace {

// Of one endpoint and direction.
constexpr size_t kMaxLarge = 8;

// Once: what cannot be registered is copied by whoever is above.
void WarnOfRegistration(const absl::Status& why) {
  static std::atomic<bool> has_warned{false};
  if (has_warned.exchange(true)) return;
  LogWarning("transport ofi: memory of a device is not registered: ",
             why.message());
}

}  // namespace

bool OfiContext::IsAgreed(const Endpoint& endpoint) const {
  return endpoint.is_accepted_by_peer &&
         (fabric_->is_shm() || endpoint.send_lane != nullptr);
}

// Of a payload on a device, which goes from there by a lane or not at all.
absl::StatusOr<Registration> OfiContext::RegisterToSend(
    const Endpoint& endpoint, ConstBytes payload) {
  if (!IsOnDevice(payload)) return Registration();
  if (!TakesSome(payload.device.kind)) {
    return CheckOnHost("ofi", payload.device);
  }
  if (!IsAgreed(endpoint) || payload.size < fabric_->large_bytes()) {
    return absl::UnimplementedError(
        "transport ofi takes no payload on a device before both sides have "
        "agreed on lanes, and none that is small");
  }
  absl::StatusOr<Registration> made = fabric_->Register(payload);
  if (made.ok()) return made;
  WarnOfRegistration(made.status());
  return absl::UnimplementedError(made.status().message());
}

bool OfiContext::TakesNow(Bytes target) {
  if (!IsOnDevice(target)) return true;
  if (!is_in_large_header_ || !TakesSome(target.device.kind)) return false;
  absl::StatusOr<Registration> made = fabric_->Register(target);
  if (!made.ok()) {
    WarnOfRegistration(made.status());
    return false;
  }
  asked_for_ = *std::move(made);
  return true;
}

// False: there are enough on the way; the peer says when it has taken one.
bool OfiContext::PrepareLarge(Endpoint& endpoint) {
  const auto is_large = [&] {
    const Outgoing& message = *endpoint.next;
    return message.kind == Kind::kData && !message.is_begun &&
           !message.is_large && message.payload.size >= fabric_->large_bytes();
  };
  if (!is_large()) return true;
  if (!endpoint.has_offered) Offer(endpoint);
  if (!is_large() || !IsAgreed(endpoint)) return true;
  if (endpoint.num_untaken >= kMaxLarge) return false;
  SendLarge(endpoint, *endpoint.next);
  return true;
}

// Without success, while the lane connects above all, it goes in records.
void OfiContext::SendLarge(Endpoint& endpoint, Outgoing& message) {
  if (fabric_->is_shm()) {
    if (!IsReadableByProcesses(message.payload)) return;
    endpoint.exposed.push_back(&message);
  } else {
    Slot* slot = fabric_->TakeLaneSlot(Role::kLaneSend, message.payload,
                                       message.registration);
    if (slot == nullptr) return;
    slot->endpoint = endpoint.id;
    slot->message = &message;
    const uint64_t tag = endpoint.peer_token + endpoint.next_tag_to_send;
    const int error = endpoint.send_lane->Send(slot, message.payload,
                                               endpoint.peer_lane, tag);
    if (error != 0) {
      fabric_->ReturnSlot(slot);
      if (!IsOnDevice(message.payload) || error == FI_EAGAIN) return;
      return Fail(endpoint, FabricError("send from a device", error));
    }
    ++endpoint.next_tag_to_send;
  }
  message.is_large = true;
  ++num_large_;
  ++message.num_pending;
  ++endpoint.num_untaken;
}

size_t OfiContext::PackPlace(const Outgoing& message, std::byte* out) const {
  if (!fabric_->is_shm()) return 0;
  StoreLittleEndian(out, reinterpret_cast<uint64_t>(message.payload.data));
  return kPlaceBytes;
}

void OfiContext::Offer(Endpoint& endpoint) {
  endpoint.has_offered = true;
  if (fabric_->is_shm()) {
    const auto address = reinterpret_cast<uint64_t>(&endpoint.token);
    return Answer(endpoint, Kind::kOffer, {&address, sizeof(address)});
  }
  if (fabric_->has_lanes()) Answer(endpoint, Kind::kOffer, {});
}

void OfiContext::Answer(Endpoint& endpoint, Kind kind, ConstBytes header) {
  Outgoing& message = Enqueue(endpoint, kind, /*is_urgent=*/true);
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  StartPumping(endpoint);
}

bool OfiContext::OpenLane(std::unique_ptr<Lane>* lane) {
  if (!fabric_->has_lanes()) return false;
  auto opened = fabric_->OpenLane();
  if (!opened.ok() || (*opened)->address().size() > kMaxHeaderBytes) {
    LogWarning("transport ofi: large messages are copied, no lane: ",
               opened.status().message());
    return false;
  }
  *lane = *std::move(opened);
  ++num_lanes_;
  return true;
}

void OfiContext::CloseLanes(Endpoint& endpoint) {
  for (std::unique_ptr<Lane>* lane :
       {&endpoint.send_lane, &endpoint.receive_lane}) {
    if (*lane != nullptr) --num_lanes_;
    lane->reset();
  }
  if (endpoint.peer_lane != FI_ADDR_NOTAVAIL) {
    fabric_->RemovePeer(endpoint.peer_lane_address);
  }
}

void OfiContext::TakeOffer(Endpoint& endpoint, ConstBytes header) {
  if (endpoint.has_accepted) return FailProtocol(endpoint, "a second offer");
  if (fabric_->is_shm()) {
    if (header.size != kPlaceBytes) return FailProtocol(endpoint, "offer");
    uint64_t token = 0;
    if (!ReadProcess(endpoint.peer_process, {&token, sizeof(token)},
                     LoadLittleEndian<uint64_t>(header.data)) ||
        token != endpoint.peer_token) {
      return;  // not permitted here; the peer goes on with records
    }
    endpoint.has_accepted = true;
    return Answer(endpoint, Kind::kAccept, {});
  }
  if (!OpenLane(&endpoint.receive_lane)) return;
  endpoint.has_accepted = true;
  const std::string& address = endpoint.receive_lane->address();
  Answer(endpoint, Kind::kAccept, {address.data(), address.size()});
}

void OfiContext::TakeAccept(Endpoint& endpoint, ConstBytes header) {
  if (!endpoint.has_offered || endpoint.is_accepted_by_peer) {
    return FailProtocol(endpoint, "an answer to no offer");
  }
  endpoint.is_accepted_by_peer = true;
  if (fabric_->is_shm() || !OpenLane(&endpoint.send_lane)) return;
  std::string address(reinterpret_cast<const char*>(header.data), header.size);
  const absl::StatusOr<fi_addr_t> added = fabric_->AddPeer(address);
  if (!added.ok()) return FailProtocol(endpoint, added.status().message());
  endpoint.peer_lane = *added;
  endpoint.peer_lane_address = std::move(address);
}

void OfiContext::TakeTaken(Endpoint& endpoint) {
  if (endpoint.num_untaken == 0) {
    return FailProtocol(endpoint, "thanks for nothing");
  }
  --endpoint.num_untaken;
  StartPumping(endpoint);
  if (!fabric_->is_shm()) return;
  Outgoing& message = *endpoint.exposed.front();
  endpoint.exposed.pop_front();
  FinishPart(endpoint, message);
}

void OfiContext::TakeLarge(Endpoint& endpoint, const Record& record) {
  const bool is_agreed =
      endpoint.has_accepted &&
      record.data.size == (fabric_->is_shm() ? kPlaceBytes : 0);
  if (!is_agreed || IsInMessage(endpoint) ||
      endpoint.num_large_incoming >= kMaxLarge) {
    return FailProtocol(endpoint, "a large message that was not agreed on");
  }
  Incoming* message = Begin(endpoint, record);
  if (endpoint.state == State::kFailed) return;
  if (fabric_->is_shm()) return ReadFromPeer(endpoint, message, record.data);
  ReceiveOnLane(endpoint, message, record.payload_bytes);
}

// What libfabric's shm does too, but without holding a lock of the peer's that
// stays locked if we are killed. Null: nobody wants it any more.
void OfiContext::ReadFromPeer(Endpoint& endpoint, Incoming* message,
                              ConstBytes place) {
  if (message != nullptr) {
    const bool is_read = ReadProcess(
        endpoint.peer_process, {message->target.data, message->payload_bytes},
        LoadLittleEndian<uint64_t>(place.data));
    // A sender that has given up disconnects before it reuses its memory.
    if (!is_read || HasPeerLeft(endpoint)) {
      return Fail(endpoint,
                  absl::UnavailableError("the peer is gone: its memory cannot "
                                         "be read"));
    }
    message->is_whole = true;
  }
  Answer(endpoint, Kind::kTaken, {});
  Deliver(endpoint);
}

void OfiContext::ReceiveOnLane(Endpoint& endpoint, Incoming* message,
                               size_t num_bytes) {
  if (message == nullptr) {  // so that the goodbye behind it can be heard
    if (endpoint.scratch.size() == 0) {
      absl::StatusOr<Buffer> scratch = Buffer::Create(kMaxPayloadBytes);
      if (!scratch.ok()) return Fail(endpoint, scratch.status());
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
      fabric_->TakeLaneSlot(Role::kLaneReceive, target, message->registration);
  if (slot == nullptr) {
    return Fail(endpoint, absl::ResourceExhaustedError(
                              "the memory for a large message cannot be "
                              "registered"));
  }
  slot->endpoint = endpoint.id;
  slot->message = message;
  const uint64_t tag = endpoint.token + endpoint.next_tag_to_hear;
  const int error = endpoint.receive_lane->Receive(slot, target, tag);
  if (error != 0) {
    fabric_->ReturnSlot(slot);
    return Fail(endpoint, FabricError("receive", error));
  }
  ++endpoint.next_tag_to_hear;
  ++endpoint.num_large_incoming;
  message->is_in_lane = true;
}

void OfiContext::HandleLaneReceived(const Completion& completion) {
  Endpoint* endpoint = endpoints_.Find(completion.slot->endpoint);
  auto* message = static_cast<Incoming*>(completion.slot->message);
  fabric_->ReturnSlot(completion.slot);
  if (endpoint == nullptr || message == nullptr) return;
  --endpoint->num_large_incoming;
  message->is_in_lane = false;
  if (completion.error != 0) {
    return Fail(*endpoint,
                FabricError("the peer is gone: receive", completion.error));
  }
  if (completion.num_bytes != message->payload_bytes) {
    return FailProtocol(
        *endpoint, absl::StrCat("a large message of ", completion.num_bytes,
                                " bytes where ", message->payload_bytes,
                                " were announced"));
  }
  message->is_whole = true;
  Answer(*endpoint, Kind::kTaken, {});
  Deliver(*endpoint);
}

}  // namespace telegrad::ofi
