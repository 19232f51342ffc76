#include "transport/ucx/receiver.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/send_checks.h"

namespace telegrad::ucx {

ucs_status_t Receiver::OnArrived(void* receiver, const void* header,
                                 size_t header_bytes, void* data,
                                 size_t data_bytes,
                                 const ucp_am_recv_param_t* param) {
  auto* self = static_cast<Receiver*>(receiver);
  if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP)) return UCS_OK;
  const Endpoint* from = self->endpoints_.FindByHandle(param->reply_ep);
  if (from == nullptr) return UCS_OK;  // cut already
  return self->Take(*from, self->worker_.handle, {header, header_bytes},
                    {data, data_bytes}, param->recv_attr);
}

ucs_status_t Receiver::OnLaneArrived(void* lane, const void* header,
                                     size_t header_bytes, void* data,
                                     size_t data_bytes,
                                     const ucp_am_recv_param_t* param) {
  const auto* by = static_cast<const Lane*>(lane);
  const Endpoint* from = by->owner();
  if (from == nullptr || from->is_cut) return UCS_OK;
  return from->receiver->Take(*from, by->worker(), {header, header_bytes},
                              {data, data_bytes}, param->recv_attr);
}

// UCX keeps `payload` for us when this returns UCS_INPROGRESS.
ucs_status_t Receiver::Take(const Endpoint& endpoint, ucp_worker_h worker,
                            ConstBytes header, Bytes payload,
                            uint64_t attributes) {
  constexpr uint64_t kKept =
      UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA;
  const bool is_kept = (attributes & kKept) != 0;
  Prefix prefix;
  if (header.size < kPrefixBytes || header.size > kMaxRecordBytes ||
      payload.size > kMaxPayloadBytes || !Unpack(header.data, &prefix) ||
      (prefix.kind == Kind::kData
           ? header.size > kPrefixBytes + max_header_bytes_
           : payload.size > 0 || worker != worker_.handle)) {
    endpoints_.TellFailure(endpoint.id, UCS_ERR_MESSAGE_TRUNCATED);
    return UCS_OK;
  }
  Incoming* message = incoming_.Get();
  message->receiver = this;
  message->endpoint = endpoint.id;
  message->worker = worker;
  message->kind = prefix.kind;
  message->sequence = prefix.sequence;
  message->header_bytes = header.size - kPrefixBytes;
  std::copy_n(header.data + kPrefixBytes, message->header_bytes,
              message->header.data());
  message->payload_bytes = payload.size;
  message->is_rendezvous = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  message->descriptor = is_kept ? payload.data : nullptr;
  message->copy.assign(payload.data,
                       payload.data + (is_kept ? 0 : payload.size));
  message->has_arrived = false;
  message->result = UCS_OK;
  arrived_.push_back(message);
  return is_kept ? UCS_INPROGRESS : UCS_OK;
}

void Receiver::HandleArrived() {
  arrived_now_.swap(arrived_);
  for (Incoming* message : arrived_now_) {
    Endpoint* endpoint = endpoints_.Find(message->endpoint);
    if (endpoint == nullptr) {
      Release(message);
    } else if (message->kind == Kind::kData ||
               (message->kind == Kind::kGoodbye &&
                endpoint->state == State::kOpen)) {
      if (message->kind == Kind::kData && !endpoint->proof.is_done()) {
        endpoints_.Fail(*endpoint, absl::UnauthenticatedError(
                                       "the peer has proved nothing"));
      }
      if (endpoint->state == State::kOpen) {
        if (endpoint->route == Route::kUnknown &&
            message->worker != worker_.handle) {
          routes_.ReceiveEarly(*endpoint);
        }
        TakeInOrder(*endpoint, message);
      } else {
        Release(message);
      }
    } else {
      ReceiveControl(*endpoint, *message);
      Release(message);
    }
  }
  arrived_now_.clear();
}

void Receiver::ReceiveControl(Endpoint& endpoint, const Incoming& message) {
  if (endpoint.state == State::kFailed) return;
  if (message.kind == Kind::kGoodbyeAck) {
    endpoint.is_acknowledged = true;
    return;
  }
  if (message.kind == Kind::kGoodbye) return ReceiveGoodbye(endpoint);
  routes_.Receive(endpoint, message.kind,
                  {reinterpret_cast<const char*>(message.header.data()),
                   message.header_bytes});
  if (!endpoint.has_greeted || endpoint.state != State::kOpen) return;
  endpoints_.HasGreeted(endpoint);
  if (std::exchange(endpoint.is_announced, true)) return;
  ++num_events_;
  handler_.OnAccept(endpoint.id);
}

// Both sides may say goodbye at once.
void Receiver::ReceiveGoodbye(Endpoint& endpoint) {
  if (endpoint.state == State::kOpen) {
    endpoints_.BeginClosing(
        endpoint, State::kPeerClosed,
        absl::UnavailableError("the peer has closed the connection"));
  }
  sender_.Post(endpoint, Kind::kGoodbyeAck);
}

void Receiver::TakeInOrder(Endpoint& endpoint, Incoming* message) {
  if (message->sequence != endpoint.next_to_announce) {
    const uint32_t ahead = message->sequence - endpoint.next_to_announce;
    if (ahead > kReorderWindow ||
        !endpoint.early.emplace(message->sequence, message).second) {
      endpoints_.Fail(endpoint, absl::UnavailableError(absl::StrCat(
                                    "the peer breaks the protocol: message ",
                                    message->sequence, " where ",
                                    endpoint.next_to_announce, " was due")));
      Release(message);
    }
    return;
  }
  Announce(endpoint, message);
  while (endpoint.state == State::kOpen && !endpoint.early.empty()) {
    const auto first = endpoint.early.find(endpoint.next_to_announce);
    if (first == endpoint.early.end()) break;
    Incoming* next = first->second;
    endpoint.early.erase(first);
    Announce(endpoint, next);
  }
  Deliver(endpoint);
}

void Receiver::Announce(Endpoint& endpoint, Incoming* message) {
  ++endpoint.next_to_announce;
  endpoint.announced.push_back(message);
  if (message->kind == Kind::kGoodbye) {
    message->has_arrived = true;
    return;
  }
  ++num_events_;
  absl::StatusOr<Bytes> target = handler_.OnHeader(
      endpoint.id, {message->header.data(), message->header_bytes},
      message->payload_bytes);
  if (endpoint.state != State::kOpen) return;
  CheckTarget(target, message->payload_bytes,
              context_.Takes(DeviceKind::kCuda));
  if (!target.ok()) {
    endpoints_.Fail(endpoint,
                    absl::CancelledError(absl::StrCat(
                        "message refused: ", target.status().message())));
    return;
  }
  message->target = *target;
  Receive(endpoint, message);
}

void Receiver::Receive(Endpoint& endpoint, Incoming* message) {
  const bool is_on_host = message->target.device.kind == DeviceKind::kCpu;
  if (message->descriptor == nullptr) {
    if (!is_on_host && !message->copy.empty()) {
      return endpoints_.Fail(
          endpoint,
          absl::InternalError("UCX did not keep what goes to a device"));
    }
    std::copy(message->copy.begin(), message->copy.end(), message->target.data);
    message->has_arrived = true;
    return;
  }
  if (!message->is_rendezvous && is_on_host) {
    std::copy_n(static_cast<const std::byte*>(message->descriptor),
                message->payload_bytes, message->target.data);
    ucp_am_data_release(message->worker, message->descriptor);
    message->descriptor = nullptr;
    message->has_arrived = true;
    return;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv_am = &Receiver::OnReceived;
  param.user_data = message;
  param.memory_type = MemoryTypeOf(message->target.device);
  ++endpoint.num_receives;
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(
      message->worker, std::exchange(message->descriptor, nullptr),
      message->target.data, message->payload_bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return;  // OnReceived follows
  message->result = UCS_PTR_RAW_STATUS(request);
  received_.push_back(message);
}

void Receiver::OnReceived(void* request, ucs_status_t status, size_t,
                          void* incoming) {
  auto* message = static_cast<Incoming*>(incoming);
  ucp_request_free(request);
  if (message->receiver == nullptr) return;
  message->result = status;
  message->receiver->received_.push_back(message);
}

void Receiver::HandleReceived() {
  received_now_.swap(received_);
  if (!received_now_.empty()) ReceiveCuts();
  for (Incoming* message : received_now_) {
    Endpoint& endpoint =
        *endpoints_.Find(message->endpoint);  // lives while it receives
    --endpoint.num_receives;
    message->has_arrived = message->result == UCS_OK;
    if (message->result != UCS_OK) {
      endpoints_.Fail(endpoint, PeerError("receive", message->result));
    }
    Deliver(endpoint);
  }
  received_now_.clear();
}

// A sender that has given up may use its memory for something else while we
// read it over shared memory. It disconnects before that, so what was read is
// good if the connection still stands afterwards.
void Receiver::ReceiveCuts() {
  if (memory_.num_lanes() == 0) return;
  ucp_worker_progress(worker_.handle);
  endpoints_.HandleFailures();
}

void Receiver::Deliver(Endpoint& endpoint) {
  while (endpoint.state == State::kOpen && !endpoint.announced.empty() &&
         endpoint.announced.front()->has_arrived) {
    Incoming* message = endpoint.announced.front();
    endpoint.announced.pop_front();
    if (message->kind == Kind::kGoodbye) {
      ReceiveGoodbye(endpoint);
    } else {
      ++num_events_;
      handler_.OnMessage(endpoint.id,
                         {message->header.data(), message->header_bytes},
                         {message->target.data, message->payload_bytes,
                          message->target.device});
    }
    Release(message);
  }
}

void Receiver::Release(Incoming* message) {
  if (message->descriptor != nullptr) {
    ucp_am_data_release(message->worker,
                        std::exchange(message->descriptor, nullptr));
  }
  incoming_.Put(message);
}

void Receiver::ReleaseEarly(Endpoint& endpoint) {
  for (const auto& [sequence, message] : endpoint.early) Release(message);
  endpoint.early.clear();
}

void Receiver::ReleaseAnnounced(Endpoint& endpoint) {
  for (Incoming* message : endpoint.announced) Release(message);
}

// Receives are waited for while they read the peer's memory, which ends by
// itself.
void Receiver::Abandon(Endpoint& endpoint) {
  if (endpoint.lane->is_pulling()) return;
  std::erase_if(endpoint.announced, [&](Incoming* message) {
    const bool is_due =
        message->is_rendezvous && !message->has_arrived &&
        message->descriptor == nullptr && message->result == UCS_OK &&
        message->worker == endpoint.lane->worker() &&
        std::find(received_.begin(), received_.end(), message) ==
            received_.end();
    if (!is_due) return false;
    message->receiver = nullptr;
    endpoint.lane->ExpectLeftovers();
    --endpoint.num_receives;
    return true;
  });
}

void Receiver::Forget() {
  for (Incoming* message : std::exchange(arrived_, {})) Release(message);
  for (const Incoming* message : std::exchange(received_, {})) {
    --endpoints_.Find(message->endpoint)->num_receives;
  }
}

}  // namespace telegrad::ucx
