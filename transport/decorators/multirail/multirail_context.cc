#include "transport/decorators/multirail/multirail_context.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/greeting.h"
#include "transport/send_checks.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeMultiRailTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  return multirail::MultiRailContext::Make(make_inner, options, handler);
}

namespace multirail {
namespace {

uint64_t RandomGroup() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

// How long a connection may still come after its endpoint has ended.
constexpr Duration kLateness = std::chrono::seconds(10);
constexpr size_t kMaxEnded = 1024;
// Between looks at a connection that stands still.
constexpr Duration kNap = std::chrono::milliseconds(5);

}  // namespace

MultiRailContext::Endpoint::Endpoint(MultiRailContext& context,
                                     EndpointId own_id, const Hello& hello)
    : id(own_id),
      group(hello.group),
      expected(hello.connections),
      connections(context.inner()),
      sends(context.inner(), context.due(), connections,
            [&context, this] { context.Dispatch(*this); }),
      receives(id, context.handler(), context.buffers_) {}

MultiRailContext::MultiRailContext(const TransportOptions& options,
                                   TransportHandler* handler)
    : ForwardingContext(handler),
      num_connections_(NumConnections(options)),
      max_header_bytes_(MaxHeaderBytes(options)) {}

absl::StatusOr<std::unique_ptr<TransportContext>> MultiRailContext::Make(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  std::unique_ptr<MultiRailContext> context(
      new MultiRailContext(options, handler));
  TransportOptions inner_options = options;
  inner_options.prefix_bytes += kPrefixBytes;
  RETURN_IF_ERROR(context->MakeInner(make_inner, inner_options));
  return context;
}

TransportInfo MultiRailContext::info() const {
  TransportInfo info = inner().info();
  absl::StrAppend(&info.details, ", ", num_connections_,
                  " connections to each peer");
  return info;
}

bool MultiRailContext::IsInMemory(EndpointId id) const {
  const Endpoint* const endpoint = Find(id);
  return endpoint != nullptr && endpoint->connections.IsInMemory();
}

bool MultiRailContext::IsSealed(EndpointId id) const {
  const Endpoint* const endpoint = Find(id);
  return endpoint != nullptr && endpoint->connections.IsSealed();
}

MultiRailContext::Endpoint* MultiRailContext::Find(EndpointId id) const {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

MultiRailContext::Endpoint& MultiRailContext::AddEndpoint(const Hello& hello) {
  auto added = std::make_unique<Endpoint>(*this, next_id_++, hello);
  return *(endpoints_[added->id] = std::move(added));
}

void MultiRailContext::AddConnection(Endpoint& endpoint, EndpointId inner_id,
                                     size_t index) {
  places_[inner_id] = {
      .endpoint = &endpoint,
      .connection = &endpoint.connections.Add(inner_id, index)};
}

// Used when it is there; what fails is heard as the end of this connection.
void MultiRailContext::GreetOn(Endpoint& endpoint, Connection& connection) {
  std::array<std::byte, kPrefixBytes> hello;
  PackHello({.connection = connection.index,
             .connections = endpoint.expected,
             .group = endpoint.group},
            hello.data());
  connection.is_usable = connection.index == 0;
  const auto greeted = [this, &endpoint,
                        &connection](const absl::Status& status) {
    connection.is_usable =
        status.ok() && endpoint.connections.IsWanted(connection.inner);
    Dispatch(endpoint);
  };
  (void)inner().Send(connection.inner, {hello.data(), hello.size()}, {},
                     greeted);
}

// The inner transport's addresses, with commas between them.
absl::StatusOr<EndpointId> MultiRailContext::Connect(
    absl::string_view address) {
  const std::vector<std::string> rails = absl::StrSplit(address, ',');
  ASSIGN_OR_RETURN(const EndpointId first, inner().Connect(rails[0]));
  Endpoint& endpoint = AddEndpoint(
      {.connections = inner().IsInMemory(first) ? 1 : num_connections_,
       .group = RandomGroup()});
  AddConnection(endpoint, first, 0);
  for (size_t i = 1; i < endpoint.expected; ++i) {
    const std::string& rail = rails[i % rails.size()];
    const absl::StatusOr<EndpointId> added = inner().Connect(rail);
    if (!added.ok()) {
      LogWarning("transport: connection ", i + 1, " of ", endpoint.expected,
                 " to ", rail, ": ", added.status().message());
      endpoint.expected = i;
      break;
    }
    AddConnection(endpoint, *added, i);
  }
  for (Connection& connection : endpoint.connections.all()) {
    GreetOn(endpoint, connection);
  }
  return endpoint.id;
}

void MultiRailContext::OnAccept(EndpointId inner_id) {
  const auto cut = [this](EndpointId id) { LetGo(id, places_[id]); };
  if (!greeting_.MakeRoom(kMaxGreeting, cut)) return inner().Close(inner_id);
  places_[inner_id] = {};
  greeting_.Add(inner_id);
}

// Connections of an endpoint come in any order, and the first makes it.
void MultiRailContext::Join(EndpointId inner_id, Place& place,
                            const Hello& hello) {
  greeting_.Remove(inner_id);
  const bool has_ended = std::any_of(
      ended_.begin(), ended_.end(),
      [&](const auto& ended) { return ended.first == hello.group; });
  if (has_ended) return LetGo(inner_id, place);
  const auto found = accepted_.find(hello.group);
  if (found == accepted_.end()) {
    Endpoint& endpoint = AddEndpoint(hello);
    accepted_[hello.group] = &endpoint;
    AddConnection(endpoint, inner_id, hello.connection);
    return handler().OnAccept(endpoint.id);
  }
  Endpoint& endpoint = *found->second;
  if (endpoint.connections.Has(hello.connection) ||
      hello.connections != endpoint.expected ||
      endpoint.receives.is_stopped()) {
    return LetGo(inner_id, place);
  }
  const bool is_wanted = endpoint.connections.IsWanted(inner_id);
  AddConnection(endpoint, inner_id, hello.connection);
  endpoint.connections.all().back().is_usable = is_wanted;
  Dispatch(endpoint);
}

absl::Status MultiRailContext::Send(EndpointId to, ConstBytes header,
                                    ConstBytes payload, SendDone done) {
  Endpoint* const endpoint = Find(to);
  if (endpoint == nullptr || endpoint->state != State::kOpen) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  RETURN_IF_ERROR(CheckOnHost("of several connections", payload.device));
  endpoint->sends.Add(header, payload, std::move(done));
  Dispatch(*endpoint);
  return absl::OkStatus();
}

void MultiRailContext::Dispatch(Endpoint& endpoint) {
  if (!endpoint.sends.Give()) {
    const auto found = std::find(waiting_.begin(), waiting_.end(), endpoint.id);
    if (found == waiting_.end()) waiting_.push_back(endpoint.id);
  }
  if (endpoint.state == State::kFlushing && endpoint.sends.empty()) {
    CloseConnections(endpoint);
  }
}

absl::StatusOr<Bytes> MultiRailContext::OnHeader(EndpointId from,
                                                 ConstBytes header,
                                                 size_t payload_bytes) {
  const Place& from_place = places_[from];
  if (from_place.endpoint == nullptr) {
    RETURN_IF_ERROR(ParseHello(header, payload_bytes).status());
    return Bytes();
  }
  Endpoint& endpoint = *from_place.endpoint;
  if (endpoint.state == State::kClosing) return endpoint.why;
  if (IsAck(header) || IsAsk(header)) {
    const absl::Status taken =
        IsAck(header) ? endpoint.sends.TakeAck(header, payload_bytes)
                      : TakeAsk(endpoint, header, payload_bytes);
    if (!taken.ok()) return Refuse(endpoint, taken);
    return Bytes();
  }
  if (endpoint.state == State::kFlushing) {
    RETURN_IF_ERROR(ParsePart(header, payload_bytes).status());
    return Discard(payload_bytes);
  }
  const auto place = endpoint.receives.Begin(header, payload_bytes);
  if (!place.ok()) return Refuse(endpoint, place.status());
  return place->has_value() ? **place : Discard(payload_bytes);
}

// For all such parts at once.
Bytes MultiRailContext::Discard(size_t part_bytes) {
  if (discarded_.size() == 0) discarded_ = Buffer(kPartBytes);
  return {discarded_.data(), part_bytes};
}

void MultiRailContext::OnMessage(EndpointId from, ConstBytes header,
                                 Bytes payload) {
  Place& place = places_[from];
  if (place.endpoint == nullptr) {
    const absl::StatusOr<Hello> hello = ParseHello(header, payload.size);
    if (hello.ok()) Join(from, place, *hello);
    return;
  }
  // What is no part was taken when it began.
  const absl::StatusOr<Part> part = ParsePart(header, payload.size);
  if (!part.ok()) return;
  place.endpoint->receives.HasCome(*part);
  Deliver(*place.endpoint);
}

void MultiRailContext::Deliver(Endpoint& endpoint) {
  while (const auto message = endpoint.receives.TakeNext()) {
    SendAck(endpoint);
    handler().OnMessage(
        endpoint.id, message->header_view(),
        {message->target.data, message->payload_bytes, message->target.device});
  }
}

// Often enough that a sender which is ahead by a lot need not stop.
void MultiRailContext::SendAck(Endpoint& endpoint) {
  const ReceivedSoFar& heard = endpoint.receives.heard();
  const uint64_t told = endpoint.told.weight;
  const bool is_due = told == 0 || heard.weight - told >= MaxLead(told) / 4 ||
                      endpoint.asked_for == heard.messages;
  if (!is_due) return;
  std::array<std::byte, kPrefixBytes> text;
  PackAck(heard, text.data());
  if (endpoint.connections.SendBare(text)) endpoint.told = heard;
}

// A sender asks after all that it has begun, some of which may be on its way.
absl::Status MultiRailContext::TakeAsk(Endpoint& endpoint, ConstBytes header,
                                       size_t payload_bytes) {
  ASSIGN_OR_RETURN(endpoint.asked_for, ParseAsk(header, payload_bytes));
  const ReceivedSoFar& heard = endpoint.receives.heard();
  if (heard.weight > 0 && endpoint.asked_for == heard.messages) {
    SendAck(endpoint);
  }
  return absl::OkStatus();
}

// What is queued is given as before, and the inner transport lets it leave.
void MultiRailContext::Close(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr) return;
  if (endpoint->state == State::kLost) return CloseConnections(*endpoint);
  if (endpoint->state != State::kOpen) return;
  endpoint->why = absl::CancelledError("closed by this side");
  endpoint->state = State::kFlushing;
  endpoint->receives.Stop();  // whoever has closed its side hears nothing more
  endpoint->close_by = Clock::now() + kCloseGrace;
  ending_.push_back(id);
  Dispatch(*endpoint);
}

// Ends the endpoint for what has come; returns what OnClosed will say.
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
  endpoint.receives.Stop();
  endpoint.sends.Refuse(endpoint.why);
  for (const Connection& connection : endpoint.connections.all()) {
    if (connection.is_open) inner().Close(connection.inner);
  }
}

void MultiRailContext::OnClosed(EndpointId inner_id, const absl::Status& why) {
  const Place place = places_[inner_id];
  places_.erase(inner_id);
  greeting_.Remove(inner_id);
  if (place.endpoint == nullptr) return;
  LoseConnection(*place.endpoint, *place.connection, why);
  if (IsOver(*place.endpoint, Clock::now())) End(*place.endpoint);
}

// A peer that has closed has sent all before: what is on its way on other
// connections is heard first. What this side refuses ends all.
void MultiRailContext::LoseConnection(Endpoint& endpoint,
                                      Connection& connection,
                                      const absl::Status& why) {
  endpoint.connections.HasClosed(connection);
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
  endpoint.sends.Refuse(endpoint.why);
}

bool MultiRailContext::IsOver(const Endpoint& endpoint, TimePoint now) const {
  return endpoint.connections.num_open() == 0 &&
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
  handler().OnClosed(node.mapped()->id, node.mapped()->why);
}

// Closes an inner endpoint that belongs to none of ours.
void MultiRailContext::LetGo(EndpointId inner_id, Place& place) {
  place = {};
  inner().Close(inner_id);
}

bool MultiRailContext::AdvanceTimers() {
  bool has_ended = false;
  const TimePoint now = Clock::now();
  while (!ended_.empty() && ended_.front().second <= now) ended_.pop_front();
  greeting_.CutLate(kGreetGrace,
                    [this](EndpointId id) { LetGo(id, places_[id]); });
  for (const EndpointId id : std::exchange(waiting_, {})) {
    Endpoint* const endpoint = Find(id);
    if (endpoint != nullptr) Dispatch(*endpoint);
  }
  while (!ending_.empty() && Find(ending_.front())->close_by <= now) {
    Endpoint& endpoint = *Find(ending_.front());
    ending_.erase(ending_.begin());
    if (endpoint.state != State::kClosing) CloseConnections(endpoint);
    if (!IsOver(endpoint, now)) continue;
    End(endpoint);
    has_ended = true;
  }
  return has_ended;
}

// All of a kind have the same time to live, so that the oldest is the first.
TimePoint MultiRailContext::NextTimer() const {
  TimePoint next = waiting_.empty() ? TimePoint::max() : Clock::now() + kNap;
  next = std::min(next, greeting_.NextTimer(kGreetGrace));
  if (!ending_.empty()) {
    next = std::min(next, Find(ending_.front())->close_by);
  }
  return next;
}

bool MultiRailContext::HandleEvents(TimePoint* next) {
  const bool has_called = CallDue();
  const bool has_ended = AdvanceTimers();
  *next = std::min(*next, NextTimer());
  return has_called || has_ended;
}

}  // namespace multirail
}  // namespace telegrad
