#include "transport/ucx/sender.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"

namespace telegrad::ucx {
namespace {

// Up to here a message is copied through UCX's buffers, above the receiver
// takes it from the sender's memory.
constexpr size_t kEagerBytes = 4 * 1024;
constexpr size_t kLaneEagerBytes = 8 * 1024;

}  // namespace

void Sender::Post(Endpoint& endpoint, Kind kind, ConstBytes header,
                  ConstBytes payload, SendDone done) {
  Outgoing* message = outgoing_.Get();
  message->sender = this;
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

void Sender::Submit(Endpoint& endpoint, Outgoing* message) {
  const bool by_lane =
      message->kind == Kind::kData && endpoint.route == Route::kShm;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS |
                       UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = &Sender::OnSent;
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

void Sender::OnSent(void* request, ucs_status_t status, void* outgoing) {
  auto* message = static_cast<Outgoing*>(outgoing);
  ucp_request_free(request);
  Sender* const self = message->sender;
  if (self == nullptr) return;
  message->result = status;
  self->sent_.push_back(message);
  std::vector<Outgoing*>& sends =
      self->endpoints_.Find(message->endpoint)->lane_sends;
  if (message->place >= sends.size() || sends[message->place] != message) {
    return;  // not over shared memory
  }
  sends.back()->place = message->place;
  sends[message->place] = sends.back();
  sends.pop_back();
}

void Sender::SubmitUnrouted(Endpoint& endpoint) {
  for (Outgoing* message : std::exchange(endpoint.unrouted, {})) {
    Submit(endpoint, message);
  }
}

void Sender::CancelUnrouted(Endpoint& endpoint) {
  for (Outgoing* message : std::exchange(endpoint.unrouted, {})) {
    message->result = UCS_ERR_CANCELED;
    sent_.push_back(message);
  }
}

// UCX cancels what is in its queues at once, but what the peer has been told
// of only when the peer takes the cancellation, and a dead one never does. UCX
// does not touch those buffers of its own accord any more.
void Sender::Abandon(Endpoint& endpoint) {
  if (!endpoint.lane_sends.empty()) endpoint.lane->ExpectLeftovers();
  for (Outgoing* message : std::exchange(endpoint.lane_sends, {})) {
    Outgoing* heir = outgoing_.Get();
    heir->sender = std::exchange(message->sender, nullptr);
    heir->endpoint = message->endpoint;
    heir->kind = message->kind;
    heir->done = std::exchange(message->done, nullptr);
    heir->result = UCS_ERR_CANCELED;
    sent_.push_back(heir);
  }
}

size_t Sender::HandleSent() {
  size_t num_called = 0;
  sent_now_.swap(sent_);
  for (Outgoing* message : sent_now_) {
    Endpoint& endpoint =
        *endpoints_.Find(message->endpoint);  // lives while it has sends
    absl::Status status;
    if (message->result != UCS_OK) {
      if (endpoint.state == State::kOpen) {
        endpoints_.Fail(endpoint, PeerError("send", message->result));
      }
      status = endpoint.why;
    }
    const SendDone done = std::move(message->done);
    message->done = nullptr;
    outgoing_.Put(message);
    --endpoint.num_sends;
    if (!done) continue;
    ++num_called;
    done(status);
  }
  sent_now_.clear();
  return num_called;
}

void Sender::Forget() {
  for (const Outgoing* message : std::exchange(sent_, {})) {
    --endpoints_.Find(message->endpoint)->num_sends;
  }
}

}  // namespace telegrad::ucx
