#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/log.h"
#include "transport/ucx/config.h"
#include "transport/ucx/ucx_context.h"

// The end of an endpoint. An orderly end is agreed with messages of our own:
// UCX's flush says that bytes have left, not that the peer has heard them, and
// its disconnect may overtake them.
namespace telegrad::ucx {
namespace {

// How long UCX may take to finish what it has cancelled.
constexpr Duration kCutGrace = std::chrono::seconds(1);

}  // namespace

void UcxContext::Close(EndpointId id) {
  Endpoint* endpoint = Find(id);
  if (endpoint == nullptr || endpoint->state != State::kOpen) return;
  BeginClosing(*endpoint, State::kClosing,
               absl::CancelledError("closed by this side"));
  Post(*endpoint, Kind::kGoodbye, {}, {}, nullptr);
}

void UcxContext::BeginClosing(Endpoint& endpoint, State state,
                              absl::Status why) {
  if (endpoint.state == State::kOpen) {
    closing_.push_back(endpoint.id);
    endpoint.why = std::move(why);
    endpoint.close_by = Clock::now() + kCloseGrace;
  }
  endpoint.state = state;
}

void UcxContext::Fail(Endpoint& endpoint, absl::Status why) {
  BeginClosing(endpoint, State::kFailed, std::move(why));
}

void UcxContext::ReceiveGoodbye(Endpoint& endpoint, Kind kind) {
  if (kind == Kind::kGoodbyeAck) {
    endpoint.is_acknowledged = true;
    return;
  }
  // Both sides may say goodbye at once.
  if (endpoint.state == State::kOpen) {
    BeginClosing(endpoint, State::kPeerClosed,
                 absl::UnavailableError("the peer has closed the connection"));
  }
  Post(endpoint, Kind::kGoodbyeAck, {}, {}, nullptr);
}

void UcxContext::Cut(Endpoint& endpoint) {
  endpoint.is_cut = true;
  by_handle_.erase(endpoint.handle);
  for (const auto& [sequence, message] : endpoint.early) Release(message);
  endpoint.early.clear();
  for (Outgoing* message : std::exchange(endpoint.unrouted, {})) {
    message->result = UCS_ERR_CANCELED;
    sent_.push_back(message);
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint.handle, &param);
  if (UCS_PTR_IS_PTR(request)) {
    endpoint.close_request = request;
  } else if (UCS_PTR_IS_ERR(request)) {
    LogWarning("transport ucx: close: ",
               ucs_status_string(UCS_PTR_STATUS(request)));
  }
}

// UCX has let go of the endpoint, of all buffers sent and of all to receive.
// Shared memory goes after the connection: ReceiveCuts relies on that order.
bool UcxContext::IsGone(Endpoint& endpoint) {
  if (endpoint.close_request != nullptr) {
    if (ucp_request_check_status(endpoint.close_request) == UCS_INPROGRESS) {
      return false;
    }
    ucp_request_free(std::exchange(endpoint.close_request, nullptr));
  }
  if (endpoint.lane != nullptr && endpoint.lane->handle() != nullptr) {
    endpoint.lane->Cut();
    Abandon(endpoint);
  }
  return endpoint.num_sends == 0 && endpoint.num_receives == 0;
}

// UCX cancels what is in its queues at once, but what the peer has been told
// of only when the peer takes the cancellation, and a dead one never does. UCX
// does not touch those buffers of its own accord any more. Receives are waited
// for while they read the peer's memory, which ends by itself.
void UcxContext::Abandon(Endpoint& endpoint) {
  if (!endpoint.lane_sends.empty()) endpoint.lane->ExpectLeftovers();
  for (Outgoing* message : std::exchange(endpoint.lane_sends, {})) {
    Outgoing* heir = outgoing_.Get();
    heir->context = std::exchange(message->context, nullptr);
    heir->endpoint = message->endpoint;
    heir->kind = message->kind;
    heir->done = std::exchange(message->done, nullptr);
    heir->result = UCS_ERR_CANCELED;
    sent_.push_back(heir);
  }
  if (endpoint.lane->is_pulling()) return;
  std::erase_if(endpoint.announced, [&](Incoming* message) {
    const bool is_due =
        message->is_rendezvous && !message->has_arrived &&
        message->descriptor == nullptr && message->result == UCS_OK &&
        message->worker == endpoint.lane->worker() &&
        std::find(received_.begin(), received_.end(), message) ==
            received_.end();
    if (!is_due) return false;
    message->context = nullptr;
    endpoint.lane->ExpectLeftovers();
    --endpoint.num_receives;
    return true;
  });
}

void UcxContext::AdvanceClosing() {
  const TimePoint now = Clock::now();
  for (size_t i = 0; i < closing_.size();) {
    Endpoint& endpoint = *Find(closing_[i]);
    const bool is_settled =
        endpoint.state == State::kFailed ||
        (endpoint.state == State::kClosing && endpoint.is_acknowledged &&
         endpoint.num_sends == 0);
    if (!endpoint.is_cut && (is_settled || now >= endpoint.close_by)) {
      Cut(endpoint);
    }
    if (!endpoint.is_cut || !IsGone(endpoint)) {
      ++i;
      continue;
    }
    for (Incoming* message : endpoint.announced) Release(message);
    DropLane(endpoint);
    const EndpointId id = endpoint.id;
    const absl::Status why = endpoint.why;
    closing_[i] = closing_.back();
    closing_.pop_back();
    found_ = nullptr;
    endpoints_.erase(id);
    ++num_events_;
    handler_->OnClosed(id, why);
  }
}

// A lane outlives its endpoint while UCX tidies up, for at most kCutGrace.
void UcxContext::AdvanceRetired() {
  const TimePoint now = Clock::now();
  std::erase_if(retired_, [now](auto& retired) {
    retired.lane->Poll();
    if (retired.lane->IsQuiet()) return true;
    if (now < retired.until) return false;
    retired.lane->ExpectLeftovers();
    return true;
  });
}

void UcxContext::DropLane(Endpoint& endpoint) {
  if (endpoint.lane == nullptr) return;
  lanes_.erase(std::find(lanes_.begin(), lanes_.end(), endpoint.lane.get()));
  endpoint.lane->Cut();
  endpoint.lane->Disown();
  retired_.push_back({std::move(endpoint.lane), Clock::now() + kCutGrace});
}

TimePoint UcxContext::NextTimer() const {
  TimePoint next = TimePoint::max();
  for (EndpointId id : closing_) {
    const Endpoint& endpoint = *endpoints_.at(id);
    if (!endpoint.is_cut) next = std::min(next, endpoint.close_by);
  }
  for (const Retired& retired : retired_) next = std::min(next, retired.until);
  return next;
}

void UcxContext::CutAll() {
  for (const auto& [id, endpoint] : endpoints_) {
    endpoint->state = State::kFailed;
    if (!endpoint->is_cut) Cut(*endpoint);
  }
  const TimePoint deadline = Clock::now() + kCutGrace;
  const auto is_busy = [this] {
    for (Incoming* message : std::exchange(arrived_, {})) Release(message);
    for (Incoming* message : std::exchange(received_, {})) {
      --Find(message->endpoint)->num_receives;
    }
    for (Outgoing* message : std::exchange(sent_, {})) {
      --Find(message->endpoint)->num_sends;
    }
    return std::any_of(endpoints_.begin(), endpoints_.end(),
                       [this](auto& it) { return !IsGone(*it.second); });
  };
  while (is_busy()) {
    if (Clock::now() >= deadline) {
      LogWarning("transport ucx: buffers are in use after the end");
      break;
    }
    Poll(/*is_complete=*/true);
  }
  for (const auto& [id, endpoint] : endpoints_) {
    for (Incoming* message : endpoint->announced) Release(message);
    DropLane(*endpoint);
  }
  while (!retired_.empty() && Clock::now() < deadline) AdvanceRetired();
}

}  // namespace telegrad::ucx
