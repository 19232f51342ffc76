#include "transport/decorators/multirail/multirail_context.h"

#include <algorithm>
#include <random>

#include "absl/status/status.h"
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

}  // namespace

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

// As all connections in use are. Of others it may not be known yet.
bool MultiRailContext::IsInMemory(EndpointId id) const {
  const Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr) return false;
  bool has_any = false;
  for (const Connection& connection : endpoint->connections) {
    if (!connection.is_usable) continue;
    if (!inner().IsInMemory(connection.inner)) return false;
    has_any = true;
  }
  return has_any;
}

// Once messages were said to stay in memory they do: a connection that turns
// out to be over a network carries none.
bool MultiRailContext::IsWanted(const Endpoint& endpoint,
                                EndpointId inner_id) const {
  return inner().IsInMemory(inner_id) || !IsInMemory(endpoint.id);
}

MultiRailContext::Endpoint* MultiRailContext::Find(EndpointId id) const {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

MultiRailContext::Endpoint& MultiRailContext::AddEndpoint(const Hello& hello) {
  auto added = std::make_unique<Endpoint>();
  added->id = next_id_++;
  added->group = hello.group;
  added->expected = hello.connections;
  return *(endpoints_[added->id] = std::move(added));
}

void MultiRailContext::AddConnection(Endpoint& endpoint, EndpointId inner_id,
                                     size_t index) {
  Connection& added = endpoint.connections.emplace_back();
  added.inner = inner_id;
  added.index = index;
  ++endpoint.num_open;
  places_[inner_id] = {.endpoint = &endpoint, .connection = &added};
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
    connection.is_usable = status.ok() && IsWanted(endpoint, connection.inner);
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
  for (Connection& connection : endpoint.connections) {
    GreetOn(endpoint, connection);
  }
  return endpoint.id;
}

void MultiRailContext::OnAccept(EndpointId inner_id) {
  if (greeting_.size() >= kMaxGreeting) return inner().Close(inner_id);
  places_[inner_id].greet_by = Clock::now() + kGreetGrace;
  greeting_.push_back(inner_id);
}

// Connections of an endpoint come in any order, and the first makes it.
void MultiRailContext::Join(EndpointId inner_id, Place& place,
                            const Hello& hello) {
  std::erase(greeting_, inner_id);
  const bool has_ended = std::any_of(
      ended_.begin(), ended_.end(),
      [&](const auto& ended) { return ended.first == hello.group; });
  if (has_ended) return LetGo(inner_id, place);
  const auto found = accepted_.find(hello.group);
  if (found == accepted_.end()) {
    Endpoint& endpoint = AddEndpoint(hello);
    accepted_[hello.group] = &endpoint;
    AddConnection(endpoint, inner_id, hello.connection);
    ++num_events_;
    return handler().OnAccept(endpoint.id);
  }
  Endpoint& endpoint = *found->second;
  const bool is_known = std::any_of(
      endpoint.connections.begin(), endpoint.connections.end(),
      [&](const Connection& c) { return c.index == hello.connection; });
  if (is_known || hello.connections != endpoint.expected ||
      !IsReceiving(endpoint)) {
    return LetGo(inner_id, place);
  }
  const bool is_wanted = IsWanted(endpoint, inner_id);
  AddConnection(endpoint, inner_id, hello.connection);
  endpoint.connections.back().is_usable = is_wanted;
  Dispatch(endpoint);
}

bool MultiRailContext::HandleEvents(TimePoint* next) {
  num_events_ = 0;
  if (CallDue()) ++num_events_;
  AdvanceTimers();
  *next = std::min(*next, NextTimer());
  return num_events_ > 0;
}

}  // namespace multirail
}  // namespace telegrad
