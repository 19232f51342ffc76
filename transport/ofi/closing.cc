#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "transport/ofi/ofi_context.h"

// The end of an endpoint. An orderly end is agreed by records: completions say
// that bytes have left, not that the peer has heard them.
namespace telegrad::ofi {
namespace {

// How long a peer on another thread may take to leave our memory alone.
constexpr Duration kLeaveGrace = std::chrono::milliseconds(100);

}  // namespace

OfiContext::~OfiContext() {
  if (fabric_ != nullptr) AwaitFragilePeers();
}

void OfiContext::AwaitFragilePeers() {
  const TimePoint deadline = Clock::now() + kLeaveGrace;
  for (const auto& [id, endpoint] : endpoints_) {
    if (endpoint->is_fragile) shutdown(endpoint->socket.get(), SHUT_WR);
  }
  for (const auto& [id, endpoint] : endpoints_) {
    if (!endpoint->is_fragile) continue;
    pollfd file = {endpoint->socket.get(), POLLIN, 0};
    (void)poll(&file, 1, PollTimeoutMs(Clock::now(), deadline));
  }
}

void OfiContext::Close(EndpointId id) {
  Endpoint* endpoint = Find(id);
  if (endpoint == nullptr || endpoint->state != State::kOpen ||
      !endpoint->is_announced) {
    return;
  }
  BeginClosing(*endpoint, State::kClosing,
               absl::CancelledError("closed by this side"));
  Enqueue(*endpoint, Kind::kGoodbye, /*is_urgent=*/false);
  StartPumping(*endpoint);
}

void OfiContext::BeginClosing(Endpoint& endpoint, State state,
                              absl::Status why) {
  if (endpoint.state == State::kOpen) {
    closing_.push_back(endpoint.id);
    endpoint.why = std::move(why);
    endpoint.close_by = Clock::now() + kCloseGrace;
  }
  endpoint.state = state;
}

void OfiContext::Fail(Endpoint& endpoint, absl::Status why) {
  BeginClosing(endpoint, State::kFailed, std::move(why));
}

// The answer overtakes messages: whoever has said goodbye hears none of them.
void OfiContext::HearGoodbye(Endpoint& endpoint) {
  if (endpoint.state == State::kOpen) {
    BeginClosing(endpoint, State::kPeerClosed,
                 absl::UnavailableError("the peer has closed the connection"));
  }
  Enqueue(endpoint, Kind::kGoodbyeAck, /*is_urgent=*/true);
  StartPumping(endpoint);
}

void OfiContext::ExpireGreetings(TimePoint now) {
  for (const EndpointId id : greeting_) {
    Endpoint& endpoint = *Find(id);
    if (endpoint.greet_by > now) continue;
    Fail(endpoint, absl::UnavailableError("the peer sent no hello in time"));
  }
}

void OfiContext::AdvanceClosing() {
  const TimePoint now = Clock::now();
  ExpireGreetings(now);
  for (size_t i = 0; i < closing_.size();) {
    Endpoint& endpoint = *Find(closing_[i]);
    const bool is_settled =
        endpoint.state == State::kFailed || endpoint.has_ended ||
        (endpoint.state == State::kClosing && endpoint.is_acknowledged &&
         endpoint.messages.empty());
    if (!is_settled && now < endpoint.close_by) {
      ++i;
      continue;
    }
    closing_[i] = closing_.back();
    closing_.pop_back();
    Cut(endpoint);
  }
}

void OfiContext::Cut(Endpoint& cut) {
  const auto node = endpoints_.extract(cut.id);
  Endpoint& endpoint = *node.mapped();
  std::erase(greeting_, endpoint.id);
  CloseLanes(endpoint);  // from here on libfabric has no memory of the user
  fabric_->Forget(endpoint.id);
  if (endpoint.has_greeted) fabric_->RemovePeer(endpoint.peer_address);
  endpoint.socket.Close();
  for (Outgoing& message : endpoint.messages) {
    if (message.done) done_.push_back({std::move(message.done), endpoint.why});
  }
  endpoint.messages.clear();
  CallDone();
  if (!endpoint.is_announced) return;
  ++num_events_;
  handler_->OnClosed(endpoint.id, endpoint.why);
}

TimePoint OfiContext::NextTimer() const {
  TimePoint next = TimePoint::max();
  for (const EndpointId id : closing_) {
    next = std::min(next, endpoints_.at(id)->close_by);
  }
  for (const EndpointId id : greeting_) {
    next = std::min(next, endpoints_.at(id)->greet_by);
  }
  return next;
}

}  // namespace telegrad::ofi
