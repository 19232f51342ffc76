#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"
#include "transport/ucx/config.h"
#include "transport/ucx/ucx_context.h"

// Sending, receiving, and putting messages in order.
namespace telegrad::ucx {
namespace {

// Up to here a message is copied through UCX's buffers, above the receiver
// takes it from the sender's memory.
constexpr size_t kEagerBytes = 4 * 1024;
constexpr size_t kLaneEagerBytes = 8 * 1024;

struct Prefix {
  uint32_t sequence = 0;
  Kind kind = Kind::kData;
};

void Pack(Prefix prefix, std::byte* out) {
  std::memset(out, 0, kPrefixBytes);
  StoreLittleEndian(out, prefix.sequence);
  out[4] = static_cast<std::byte>(prefix.kind);
  out[5] = static_cast<std::byte>(kPrefixVersion);
}

// False if these bytes are not ours.
bool Unpack(const std::byte* in, Prefix* prefix) {
  prefix->sequence = LoadLittleEndian<uint32_t>(in);
  prefix->kind = static_cast<Kind>(in[4]);
  return in[4] <= static_cast<std::byte>(Kind::kReady) &&
         in[5] == static_cast<std::byte>(kPrefixVersion) &&
         in[6] == std::byte{0} && in[7] == std::byte{0};
}

// Why UCX has ended an operation that we did not cancel.
absl::Status PeerError(absl::string_view what, ucs_status_t status) {
  const absl::Status error = UcxError(what, status);
  if (!absl::IsCancelled(error) && !absl::IsInternal(error)) return error;
  return absl::UnavailableError(
      absl::StrCat("the peer is gone: ", error.message()));
}

// Said, since a cache of UCX's own may be wrong about memory of others.
ucs_memory_type_t MemoryTypeOf(Device device) {
  return device.kind == DeviceKind::kCuda ? UCS_MEMORY_TYPE_CUDA
                                          : UCS_MEMORY_TYPE_HOST;
}

}  // namespace

absl::Status UcxContext::Send(EndpointId to, ConstBytes header,
                              ConstBytes payload, SendDone done) {
  Endpoint* endpoint = Find(to);
  if (endpoint == nullptr || endpoint->state != State::kOpen) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, MaxHeaderBytes(options_)));
  RETURN_IF_ERROR(CheckDevice(payload.device));
  Post(*endpoint, Kind::kData, header, payload, std::move(done));
  return absl::OkStatus();
}

void UcxContext::Post(Endpoint& endpoint, Kind kind, ConstBytes header,
                      ConstBytes payload, SendDone done) {
  Outgoing* message = outgoing_.Get();
  message->context = this;
  message->endpoint = endpoint.id;
  message->kind = kind;
  message->done = std::move(done);
  const bool is_counted = kind == Kind::kData || kind == Kind::kGoodbye;
  Pack({.sequence = is_counted ? endpoint.next_to_send++ : 0, .kind = kind},
       message->header.data());
  std::copy_n(header.data, header.size, message->header.data() + kPrefixBytes);
  message->header_bytes = kPrefixBytes + header.size;
  message->payload = payload;
  ++endpoint.num_sends;
  if (kind == Kind::kData && endpoint.route == Route::kUnknown) {
    endpoint.unrouted.push_back(message);
  } else {
    Submit(endpoint, message);
  }
}

void UcxContext::Submit(Endpoint& endpoint, Outgoing* message) {
  const bool by_lane =
      message->kind == Kind::kData && endpoint.route == Route::kShm;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS |
                       UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = &UcxContext::OnSent;
  param.user_data = message;
  param.memory_type = MemoryTypeOf(message->payload.device);
  const size_t eager_bytes = by_lane ? kLaneEagerBytes : kEagerBytes;
  param.flags = message->payload.size > eager_bytes ? UCP_AM_SEND_FLAG_RNDV
                                                    : UCP_AM_SEND_FLAG_EAGER;
  if (!by_lane) param.flags |= UCP_AM_SEND_FLAG_REPLY;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(by_lane ? endpoint.lane->handle() : endpoint.handle,
                      kMessageId, message->header.data(), message->header_bytes,
                      message->payload.data, message->payload.size, &param);
  if (UCS_PTR_IS_PTR(request)) {  // OnSent follows
    if (by_lane) {
      message->place = endpoint.lane_sends.size();
      endpoint.lane_sends.push_back(message);
    }
    return;
  }
  message->result = UCS_PTR_RAW_STATUS(request);
  sent_.push_back(message);
}

void UcxContext::OnSent(void* request, ucs_status_t status, void* outgoing) {
  auto* message = static_cast<Outgoing*>(outgoing);
  ucp_request_free(request);
  if (message->context == nullptr) return;
  message->result = status;
  message->context->sent_.push_back(message);
  std::vector<Outgoing*>& sends =
      message->context->Find(message->endpoint)->lane_sends;
  if (message->place >= sends.size() || sends[message->place] != message) {
    return;  // not over shared memory
  }
  sends.back()->place = message->place;
  sends[message->place] = sends.back();
  sends.pop_back();
}

void UcxContext::HandleSent() {
  sent_now_.swap(sent_);
  for (Outgoing* message : sent_now_) {
    Endpoint& endpoint = *Find(message->endpoint);  // lives while it has sends
    absl::Status status;
    if (message->result != UCS_OK) {
      if (endpoint.state == State::kOpen) {
        Fail(endpoint, PeerError("send", message->result));
      }
      status = endpoint.why;
    }
    const SendDone done = std::move(message->done);
    message->done = nullptr;
    outgoing_.Put(message);
    --endpoint.num_sends;
    if (!done) continue;
    ++num_events_;
    done(status);
  }
  sent_now_.clear();
}

ucs_status_t UcxContext::OnArrived(void* context, const void* header,
                                   size_t header_bytes, void* data,
                                   size_t data_bytes,
                                   const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxContext*>(context);
  if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP)) return UCS_OK;
  const auto found = self->by_handle_.find(param->reply_ep);
  if (found == self->by_handle_.end()) return UCS_OK;  // cut already
  return self->Take(*found->second, self->worker_.handle,
                    {header, header_bytes}, {data, data_bytes},
                    param->recv_attr);
}

ucs_status_t UcxContext::OnLaneArrived(void* lane, const void* header,
                                       size_t header_bytes, void* data,
                                       size_t data_bytes,
                                       const ucp_am_recv_param_t* param) {
  const auto* by = static_cast<const Lane*>(lane);
  const Endpoint* from = by->owner();
  if (from == nullptr || from->is_cut) return UCS_OK;
  return from->context->Take(*from, by->worker(), {header, header_bytes},
                             {data, data_bytes}, param->recv_attr);
}

// UCX keeps `payload` for us when this returns UCS_INPROGRESS.
ucs_status_t UcxContext::Take(const Endpoint& endpoint, ucp_worker_h worker,
                              ConstBytes header, Bytes payload,
                              uint64_t attributes) {
  constexpr uint64_t kKept =
      UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA;
  const bool is_kept = (attributes & kKept) != 0;
  Prefix prefix;
  if (header.size < kPrefixBytes || header.size > kMaxRecordBytes ||
      payload.size > kMaxPayloadBytes || !Unpack(header.data, &prefix) ||
      (prefix.kind == Kind::kData
           ? header.size > kPrefixBytes + MaxHeaderBytes(options_)
           : payload.size > 0 || worker != worker_.handle)) {
    failures_.Put({endpoint.id, UCS_ERR_MESSAGE_TRUNCATED});
    return UCS_OK;
  }
  Incoming* message = incoming_.Get();
  message->context = this;
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

void UcxContext::HandleArrived() {
  arrived_now_.swap(arrived_);
  for (Incoming* message : arrived_now_) {
    Endpoint* endpoint = Find(message->endpoint);
    if (endpoint == nullptr) {
      Release(message);
    } else if (message->kind == Kind::kData ||
               (message->kind == Kind::kGoodbye &&
                endpoint->state == State::kOpen)) {
      if (endpoint->state == State::kOpen) {
        if (endpoint->route == Route::kUnknown)
          ReceiveEarly(*endpoint, *message);
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

void UcxContext::TakeInOrder(Endpoint& endpoint, Incoming* message) {
  if (message->sequence != endpoint.next_to_announce) {
    const uint32_t ahead = message->sequence - endpoint.next_to_announce;
    if (ahead > kReorderWindow ||
        !endpoint.early.emplace(message->sequence, message).second) {
      Fail(endpoint,
           absl::UnavailableError(absl::StrCat(
               "the peer breaks the protocol: message ", message->sequence,
               " where ", endpoint.next_to_announce, " was due")));
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

void UcxContext::Announce(Endpoint& endpoint, Incoming* message) {
  ++endpoint.next_to_announce;
  endpoint.announced.push_back(message);
  if (message->kind == Kind::kGoodbye) {
    message->has_arrived = true;
    return;
  }
  ++num_events_;
  absl::StatusOr<Bytes> target = handler_->OnHeader(
      endpoint.id, {message->header.data(), message->header_bytes},
      message->payload_bytes);
  if (endpoint.state != State::kOpen) return;
  CheckTarget(target, message->payload_bytes, takes_cuda_);
  if (!target.ok()) {
    Fail(endpoint, absl::CancelledError(absl::StrCat(
                       "message refused: ", target.status().message())));
    return;
  }
  message->target = *target;
  Receive(endpoint, message);
}

void UcxContext::Receive(Endpoint& endpoint, Incoming* message) {
  const bool is_on_host = message->target.device.kind == DeviceKind::kCpu;
  if (message->descriptor == nullptr) {
    if (!is_on_host && !message->copy.empty()) {
      return Fail(endpoint, absl::InternalError(
                                "UCX did not keep what goes to a device"));
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
  param.cb.recv_am = &UcxContext::OnReceived;
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

void UcxContext::OnReceived(void* request, ucs_status_t status, size_t,
                            void* incoming) {
  auto* message = static_cast<Incoming*>(incoming);
  ucp_request_free(request);
  if (message->context == nullptr) return;
  message->result = status;
  message->context->received_.push_back(message);
}

void UcxContext::HandleReceived() {
  received_now_.swap(received_);
  if (!received_now_.empty()) ReceiveCuts();
  for (Incoming* message : received_now_) {
    Endpoint& endpoint = *Find(message->endpoint);  // lives while it receives
    --endpoint.num_receives;
    message->has_arrived = message->result == UCS_OK;
    if (message->result != UCS_OK) {
      Fail(endpoint, PeerError("receive", message->result));
    }
    Deliver(endpoint);
  }
  received_now_.clear();
}

// A sender that has given up may use its memory for something else while we
// read it over shared memory. It disconnects before that, so what was read is
// good if the connection still stands afterwards.
void UcxContext::ReceiveCuts() {
  if (lanes_.empty()) return;
  ucp_worker_progress(worker_.handle);
  HandleFailures();
}

void UcxContext::Deliver(Endpoint& endpoint) {
  while (endpoint.state == State::kOpen && !endpoint.announced.empty() &&
         endpoint.announced.front()->has_arrived) {
    Incoming* message = endpoint.announced.front();
    endpoint.announced.pop_front();
    if (message->kind == Kind::kGoodbye) {
      ReceiveGoodbye(endpoint, Kind::kGoodbye);
    } else {
      ++num_events_;
      handler_->OnMessage(endpoint.id,
                          {message->header.data(), message->header_bytes},
                          {message->target.data, message->payload_bytes,
                           message->target.device});
    }
    Release(message);
  }
}

void UcxContext::Release(Incoming* message) {
  if (message->descriptor != nullptr) {
    ucp_am_data_release(message->worker,
                        std::exchange(message->descriptor, nullptr));
  }
  incoming_.Put(message);
}

}  // namespace telegrad::ucx
