#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/decorators/multirail/multirail_context.h"

// The end of an endpoint: of all its connections, in any order.
namespace telegrad::multirail {
namespace {

// How long a connection may still come after its endpoint has ended.
constexpr Duration kLateness = std::chrono::seconds(10);
constexpr size_t kMaxEnded = 1024;
// Between looks at a connection that stands still.
constexpr Duration kNap = std::chrono::milliseconds(5);

}  // namespace

// What is queued is given as before, and the inner transport lets it leave.
void MultiRailContext::Close(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr) return;
  if (endpoint->state == State::kLost) return CloseConnections(*endpoint);
  if (endpoint->state != State::kOpen) return;
  endpoint->why = absl::CancelledError("closed by this side");
  endpoint->state = State::kFlushing;
  endpoint->close_by = Clock::now() + kCloseGrace;
  ending_.push_back(id);
  Dispatch(*endpoint);
}

// Of what has come; returns what OnClosed will say.
absl::Status MultiRailContext::Refuse(Endpoint& endpoint,
                                      const absl::Status& why) {
  if (endpoint.why.ok()) {
    endpoint.why =
        absl::CancelledError(absl::StrCat("message refused: ", why.message()));
  }
  if (endpoint.state != State::kClosing) CloseConnections(endpoint);
  return endpoint.why;
}

void MultiRailContext::CloseConnections(Endpoint& endpoint) {
  endpoint.state = State::kClosing;
  RefuseQueue(endpoint);
  for (const Connection& connection : endpoint.connections) {
    if (connection.is_open) inner().Close(connection.inner);
  }
}

void MultiRailContext::OnClosed(EndpointId inner_id, const absl::Status& why) {
  const Place place = places_[inner_id];
  places_.erase(inner_id);
  std::erase(greeting_, inner_id);
  if (place.endpoint == nullptr) return;
  LoseConnection(*place.endpoint, *place.connection, why);
  if (IsOver(*place.endpoint, Clock::now())) End(*place.endpoint);
}

// A peer that has closed has sent all before: what is on its way on other
// connections is heard first. What this side refuses ends all.
void MultiRailContext::LoseConnection(Endpoint& endpoint,
                                      Connection& connection,
                                      const absl::Status& why) {
  connection.is_open = false;
  --endpoint.num_open;
  if (endpoint.state == State::kFlushing) return CloseConnections(endpoint);
  if (endpoint.state != State::kOpen) return;
  endpoint.why = why;
  if (endpoint.expected > 1) {
    endpoint.why = absl::Status(
        why.code(), absl::StrCat("connection ", connection.index + 1, " of ",
                                 endpoint.expected, ": ", why.message()));
  }
  if (absl::IsCancelled(why)) return CloseConnections(endpoint);
  endpoint.state = State::kLost;
  endpoint.close_by = Clock::now() + kCloseGrace;
  ending_.push_back(endpoint.id);
  RefuseQueue(endpoint);
}

bool MultiRailContext::IsOver(const Endpoint& endpoint, TimePoint now) const {
  return endpoint.num_open == 0 &&
         (endpoint.state == State::kClosing ||
          endpoint.connections.size() == endpoint.expected ||
          now >= endpoint.close_by);
}

void MultiRailContext::End(Endpoint& endpoint) {
  CallDue();
  std::erase(ending_, endpoint.id);
  const auto accepted = accepted_.find(endpoint.group);
  if (accepted != accepted_.end() && accepted->second == &endpoint) {
    accepted_.erase(accepted);
    if (endpoint.connections.size() < endpoint.expected) {
      ended_.emplace_back(endpoint.group, Clock::now() + kLateness);
      if (ended_.size() > kMaxEnded) ended_.pop_front();
    }
  }
  const auto node = endpoints_.extract(endpoint.id);
  ++num_events_;
  handler().OnClosed(node.mapped()->id, node.mapped()->why);
}

// Of an inner endpoint that belongs to none of ours.
void MultiRailContext::LetGo(EndpointId inner_id, Place& place) {
  place = {};
  inner().Close(inner_id);
}

void MultiRailContext::AdvanceTimers() {
  const TimePoint now = Clock::now();
  while (!ended_.empty() && ended_.front().second <= now) ended_.pop_front();
  while (!greeting_.empty() && places_[greeting_.front()].greet_by <= now) {
    const EndpointId inner_id = greeting_.front();
    greeting_.erase(greeting_.begin());
    LetGo(inner_id, places_[inner_id]);
  }
  for (const EndpointId id : std::exchange(waiting_, {})) {
    Endpoint* const endpoint = Find(id);
    if (endpoint != nullptr) Dispatch(*endpoint);
  }
  while (!ending_.empty() && Find(ending_.front())->close_by <= now) {
    Endpoint& endpoint = *Find(ending_.front());
    ending_.erase(ending_.begin());
    if (endpoint.state != State::kClosing) CloseConnections(endpoint);
    if (IsOver(endpoint, now)) End(endpoint);
  }
}

// All of a kind have the same time to live, so that the oldest is the first.
TimePoint MultiRailContext::NextTimer() const {
  TimePoint next = waiting_.empty() ? TimePoint::max() : Clock::now() + kNap;
  if (!greeting_.empty()) {
    next = std::min(next, places_.at(greeting_.front()).greet_by);
  }
  if (!ending_.empty()) {
    next = std::min(next, Find(ending_.front())->close_by);
  }
  return next;
}

}  // namespace telegrad::multirail
