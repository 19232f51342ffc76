#include "transport/ucx/routes.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace telegrad::ucx {
namespace {

constexpr char kNever = 'n';
constexpr char kMay = 'm';
constexpr char kRequires = 'r';

}  // namespace

void Routes::Begin(Endpoint& endpoint) {
  if (endpoint.proof.is_done()) return Greet(endpoint);
  const std::string first = endpoint.proof.Begin();
  if (first.empty()) return;  // a stranger speaks first
  sender_.Post(endpoint, Kind::kProof, {first.data(), first.size()});
}

void Routes::ReceiveProof(Endpoint& endpoint, absl::string_view text) {
  const absl::StatusOr<std::string> answer = endpoint.proof.Take(&text);
  if (!answer.ok()) return endpoints_.Fail(endpoint, answer.status());
  if (!text.empty()) {
    return endpoints_.Fail(
        endpoint,
        absl::UnavailableError("the peer breaks the protocol: wrong proof"));
  }
  if (!answer->empty()) {
    sender_.Post(endpoint, Kind::kProof, {answer->data(), answer->size()});
  }
  if (endpoint.proof.is_done()) Greet(endpoint);
}

void Routes::Greet(Endpoint& endpoint) {
  char wish = demands_memory_ ? kRequires : kMay;
  if (memory_.identity().empty()) wish = kNever;
  const std::string hello =
      absl::StrCat(std::string(1, wish), memory_.identity());
  sender_.Post(endpoint, Kind::kHello, {hello.data(), hello.size()});
}

void Routes::Receive(Endpoint& endpoint, Kind kind, absl::string_view text) {
  if (kind == Kind::kProof) return ReceiveProof(endpoint, text);
  if (!endpoint.proof.is_done()) {
    return endpoints_.Fail(
        endpoint, absl::UnauthenticatedError("the peer has proved nothing"));
  }
  if (kind == Kind::kHello) return ReceiveHello(endpoint, text);
  if (kind == Kind::kLane) return HearLane(endpoint, text);
  endpoint.has_heard_ready = true;
  endpoint.is_peer_ready = text == "1";
  SettleWhenAgreed(endpoint);
}

void Routes::ReceiveHello(Endpoint& endpoint, absl::string_view text) {
  if (text.empty() || std::exchange(endpoint.has_greeted, true)) {
    return endpoints_.Fail(
        endpoint,
        absl::UnavailableError("the peer breaks the protocol: wrong hello"));
  }
  const absl::string_view identity = text.substr(1);
  if (identity.empty() || text.front() == kNever ||
      identity != memory_.identity()) {
    return Settle(endpoint, Route::kNet);
  }
  const absl::Status opened = memory_.OpenLane(endpoint);
  if (!opened.ok()) {
    LogWarning("transport ucx: no shared memory: ", opened.message());
  }
  const std::string address = opened.ok() ? endpoint.lane->address() : "";
  sender_.Post(endpoint, Kind::kLane, {address.data(), address.size()});
}

void Routes::HearLane(Endpoint& endpoint, absl::string_view address) {
  if (!endpoint.has_greeted || std::exchange(endpoint.has_heard_lane, true)) {
    return endpoints_.Fail(
        endpoint,
        absl::UnavailableError("the peer breaks the protocol: wrong lane"));
  }
  if (endpoint.lane != nullptr && !address.empty()) {
    const absl::Status connected =
        endpoint.lane->Connect(address, {&Endpoints::OnFailure, &endpoint});
    endpoint.is_lane_ready = connected.ok();
    if (!connected.ok()) {
      LogWarning("transport ucx: no shared memory: ", connected.message());
    }
  }
  const std::string verdict = endpoint.is_lane_ready ? "1" : "0";
  sender_.Post(endpoint, Kind::kReady, {verdict.data(), verdict.size()});
  SettleWhenAgreed(endpoint);
}

void Routes::SettleWhenAgreed(Endpoint& endpoint) {
  if (endpoint.route != Route::kUnknown || !endpoint.has_heard_lane ||
      !endpoint.has_heard_ready) {
    return;
  }
  const bool is_agreed = endpoint.is_lane_ready && endpoint.is_peer_ready;
  Settle(endpoint, is_agreed ? Route::kShm : Route::kNet);
}

void Routes::ReceiveEarly(Endpoint& endpoint) {
  if (!endpoint.is_lane_ready) return;
  endpoint.has_heard_ready = endpoint.is_peer_ready = true;
  SettleWhenAgreed(endpoint);
}

void Routes::Settle(Endpoint& endpoint, Route route) {
  if (route == Route::kNet) {
    memory_.DropLane(endpoint);
    if (demands_memory_) {
      return endpoints_.Fail(
          endpoint,
          absl::CancelledError("tls shm: the peer is on another host, "
                               "or one side cannot share memory"));
    }
  }
  endpoint.route = route;
  sender_.SubmitUnrouted(endpoint);
}

}  // namespace telegrad::ucx
