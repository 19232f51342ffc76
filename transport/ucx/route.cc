#include <sys/epoll.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "transport/ucx/ucx_context.h"

// Agreeing where messages go (records.h has the grammar). The connection stays
// the sign of life: the kernel resets it when a process is killed, while shared
// memory says nothing.
namespace telegrad::ucx {
namespace {

constexpr char kNever = 'n';
constexpr char kMay = 'm';
constexpr char kRequires = 'r';

}  // namespace

void UcxContext::Greet(Endpoint& endpoint) {
  char wish = options_.tls == "shm" ? kRequires : kMay;
  if (shm_context_ == nullptr || identity_.empty()) wish = kNever;
  const std::string hello = absl::StrCat(std::string(1, wish), identity_);
  Post(endpoint, Kind::kHello, {hello.data(), hello.size()}, {}, nullptr);
}

void UcxContext::ReceiveControl(Endpoint& endpoint, const Incoming& message) {
  if (endpoint.state == State::kFailed) return;
  const absl::string_view text(
      reinterpret_cast<const char*>(message.header.data()),
      message.header_bytes);
  switch (message.kind) {
    case Kind::kHello:
      return ReceiveHello(endpoint, text);
    case Kind::kLane:
      return HearLane(endpoint, text);
    case Kind::kReady:
      endpoint.has_heard_ready = true;
      endpoint.is_peer_ready = text == "1";
      return SettleWhenAgreed(endpoint);
    default:
      return ReceiveGoodbye(endpoint, message.kind);
  }
}

void UcxContext::ReceiveHello(Endpoint& endpoint, absl::string_view text) {
  if (text.empty() || std::exchange(endpoint.has_greeted, true)) {
    return Fail(endpoint, absl::UnavailableError(
                              "the peer breaks the protocol: wrong hello"));
  }
  const absl::string_view identity = text.substr(1);
  if (identity_.empty() || text.front() == kNever || identity != identity_) {
    return Settle(endpoint, Route::kNet);
  }
  auto lane = Lane::Make(shm_context_, &UcxContext::OnLaneArrived, &endpoint);
  absl::Status made = lane.status();
  if (made.ok() && (*lane)->address().size() > kMaxControlBytes) {
    made = absl::UnimplementedError("UCX's address is too long");
  }
  if (made.ok()) made = poller_.Watch((*lane)->fd(), kWorkerKey, EPOLLIN);
  if (made.ok()) {
    endpoint.lane = *std::move(lane);
    lanes_.push_back(endpoint.lane.get());
  } else {
    LogWarning("transport ucx: no shared memory: ", made.message());
  }
  const std::string address =
      endpoint.lane == nullptr ? "" : endpoint.lane->address();
  Post(endpoint, Kind::kLane, {address.data(), address.size()}, {}, nullptr);
}

void UcxContext::HearLane(Endpoint& endpoint, absl::string_view address) {
  if (!endpoint.has_greeted || std::exchange(endpoint.has_heard_lane, true)) {
    return Fail(endpoint, absl::UnavailableError(
                              "the peer breaks the protocol: wrong lane"));
  }
  if (endpoint.lane != nullptr && !address.empty()) {
    const absl::Status connected =
        endpoint.lane->Connect(address, {&UcxContext::OnFailure, &endpoint});
    endpoint.is_lane_ready = connected.ok();
    if (!connected.ok()) {
      LogWarning("transport ucx: no shared memory: ", connected.message());
    }
  }
  const std::string verdict = endpoint.is_lane_ready ? "1" : "0";
  Post(endpoint, Kind::kReady, {verdict.data(), verdict.size()}, {}, nullptr);
  SettleWhenAgreed(endpoint);
}

void UcxContext::SettleWhenAgreed(Endpoint& endpoint) {
  if (endpoint.route != Route::kUnknown || !endpoint.has_heard_lane ||
      !endpoint.has_heard_ready) {
    return;
  }
  const bool is_agreed = endpoint.is_lane_ready && endpoint.is_peer_ready;
  Settle(endpoint, is_agreed ? Route::kShm : Route::kNet);
}

// Data by the lane may pass its sender's kReady, which goes by the connection.
void UcxContext::ReceiveEarly(Endpoint& endpoint, const Incoming& message) {
  if (message.worker == worker_.handle || !endpoint.is_lane_ready) return;
  endpoint.has_heard_ready = endpoint.is_peer_ready = true;
  SettleWhenAgreed(endpoint);
}

void UcxContext::Settle(Endpoint& endpoint, Route route) {
  if (route == Route::kNet) {
    DropLane(endpoint);
    if (options_.tls == "shm") {
      return Fail(endpoint,
                  absl::CancelledError("tls shm: the peer is on another host, "
                                       "or one side cannot share memory"));
    }
  }
  endpoint.route = route;
  for (Outgoing* message : std::exchange(endpoint.unrouted, {})) {
    Submit(endpoint, message);
  }
}

}  // namespace telegrad::ucx
