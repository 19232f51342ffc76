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
  for (const auto& [id, endpoint] : endpoints_.all()) {
    if (endpoint->is_fragile) shutdown(endpoint->socket.get(), SHUT_WR);
  }
  for (const auto& [id, endpoint] : endpoints_.all()) {
    if (!endpoint->is_fragile) continue;
    pollfd file = {endpoint->socket.get(), POLLIN, 0};
    (void)poll(&file, 1, PollTimeoutMs(Clock::now(), deadline));
  }
}

void OfiContext::Close(EndpointId id) {
  Endpoint* endpoint = endpoints_.Find(id);
  if (endpoint == nullptr || endpoint->state != State::kOpen ||
      !endpoint->is_announced) {
    return;
  }
  endpoints_.BeginClosing(*endpoint, State::kClosing,
                          absl::CancelledError("closed by this side"));
  Enqueue(*endpoint, Kind::kGoodbye, /*is_urgent=*/false);
  StartPumping(*endpoint);
}

void OfiContext::Fail(Endpoint& endpoint, absl::Status why) {
  endpoints_.BeginClosing(endpoint, State::kFailed, std::move(why));
}

// The answer overtakes messages: whoever has said goodbye hears none of them.
void OfiContext::ReceiveGoodbye(Endpoint& endpoint) {
  if (endpoint.state == State::kOpen) {
    endpoints_.BeginClosing(
        endpoint, State::kPeerClosed,
        absl::UnavailableError("the peer has closed the connection"));
  }
  Enqueue(endpoint, Kind::kGoodbyeAck, /*is_urgent=*/true);
  StartPumping(endpoint);
}

void OfiContext::AdvanceClosing() {
  endpoints_.Advance(
      State::kFailed,
      [](const Endpoint& endpoint) {
        return endpoint.state == State::kFailed || endpoint.has_ended ||
               (endpoint.state == State::kClosing && endpoint.is_acknowledged &&
                endpoint.messages.empty());
      },
      [this](Endpoint& endpoint) { Cut(endpoint); });
}

void OfiContext::Cut(Endpoint& cut) {
  const std::unique_ptr<Endpoint> removed = endpoints_.Remove(cut.id);
  Endpoint& endpoint = *removed;
  CloseLanes(endpoint);  // from here on libfabric has no memory of the user
  fabric_->Forget(endpoint.id);
  if (endpoint.has_greeted) fabric_->RemovePeer(endpoint.peer_address);
  endpoint.socket.Close();
  for (Outgoing& message : endpoint.messages) {
    done_.Add(std::move(message.done), endpoint.why);
  }
  endpoint.messages.clear();
  CallDone();
  if (!endpoint.is_announced) return;
  ++num_events_;
  handler_->OnClosed(endpoint.id, endpoint.why);
}

}  // namespace telegrad::ofi
