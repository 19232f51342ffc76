#include "kvstore/members.h"

#include <cstddef>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "transport/check_transport.h"

namespace telegrad {

OwnTransports TransportsOf(const JobOptions& options) {
  OwnTransports own{.choice = ChooseTransport(options.transport)};
  TransportOptions first = options.transport;
  first.name = own.choice.name;
  first.tls = own.choice.tls;
  if (const std::string why = RdmaWarning(options.transport); !why.empty()) {
    LogWarning("transport: ", why);
    absl::StrAppend(&own.choice.reason, own.choice.reason.empty() ? "" : "; ",
                    why);
  }
  own.offers.why = own.choice.reason;
  own.offers.connections = NumConnections(first);
  own.transports = {first};
  if (own.choice.may_be_tcp) {
    own.transports.push_back(first);
    own.transports[1].name = "tcp";
    own.transports[1].tls = options.transport.tls;
  }
  for (const TransportOptions& each : own.transports) {
    own.offers.names.push_back(each.name);
  }
  own.has_auto_connections = options.has_auto_connections;
  if (own.has_auto_connections) {
    OfferConnections(ChooseConnections(first, own.choice), own);
  }
  return own;
}

void OfferConnections(const ConnectionChoice& found, OwnTransports& own) {
  const size_t rails = 1 + own.transports[0].rails.size();
  own.offers.is_open = rails == 1;
  own.offers.connections = own.offers.is_open ? found.connections : rails;
  own.offers.connections_why =
      own.offers.is_open ? found.reason
                         : absl::StrCat("one for each of ", rails, " rails");
  for (TransportOptions& each : own.transports) {
    each.connections = own.offers.connections;
  }
}

void Withdraw(size_t i, const absl::Status& why, OwnTransports& own) {
  const auto place = static_cast<ptrdiff_t>(i);
  LogWarning("transport ", own.transports[i].name,
             " is not offered: ", why.message());
  if (i == 0) own.offers.why = std::string(why.message());
  own.transports.erase(own.transports.begin() + place);
  own.offers.names.erase(own.offers.names.begin() + place);
  if (!own.has_auto_connections || own.transports.empty()) return;
  const TransportOptions& first = own.transports[0];
  const TransportChoice left = {
      .name = first.name, .reason = own.offers.why, .tls = first.tls};
  OfferConnections(ChooseConnections(first, left), own);
}

absl::StatusOr<OwnTransports> UsableTransports(const JobOptions& options) {
  class Nobody : public TransportHandler {
    void OnAccept(EndpointId) override {}
    absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes, size_t) override {
      return absl::UnavailableError("not listening");
    }
    void OnMessage(EndpointId, ConstBytes, Bytes) override {}
    void OnClosed(EndpointId, const absl::Status&) override {}
  } nobody;
  OwnTransports own = TransportsOf(options);
  for (;;) {
    const absl::Status made =
        MakeTransport(own.transports[0], &nobody).status();
    if (made.ok()) return own;
    if (own.transports.size() == 1) return made;
    Withdraw(0, made, own);
  }
}

Facts TransportFacts(Role role, const JobOptions& options,
                     const TransportChoice& choice) {
  Facts facts = {{"resend", options.transport.resend ? "on" : "off"}};
  if (role == Role::kWorker) {
    facts.emplace_back("tls", choice.tls.empty() ? "any" : choice.tls);
  }
  return facts;
}

size_t SettledIndex(const Membership& membership, const OwnTransports& own) {
  for (size_t i = 0; i < own.transports.size(); ++i) {
    if (own.transports[i].name == membership.transport) return i;
  }
  return 0;
}

TransportChoice SettledChoice(const Membership& membership,
                              const TransportChoice& own) {
  if (membership.transport.empty() || membership.transport == own.name) {
    return own;
  }
  return {.name = membership.transport,
          .reason = membership.transport_reason,
          .tls = own.tls};
}

ConnectionChoice SettledConnections(const Membership& membership,
                                    const TransportOffers& own) {
  if (membership.connections == 0) {
    return {own.connections, own.connections_why};
  }
  // What is found alike needs no name.
  const bool is_own =
      own.connections == membership.connections && !own.connections_why.empty();
  return {membership.connections,
          is_own ? own.connections_why : membership.connections_reason};
}

std::vector<int> ServersElsewhere(const Membership& membership) {
  std::set<std::string> known;
  for (const Member& each : membership.workers) known.insert(each.host);
  std::vector<int> ranks;
  for (const Member& each : membership.servers) {
    if (known.insert(each.host).second) ranks.push_back(each.id.rank);
  }
  return ranks;
}

ServerMachines ServerMachinesOf(const Membership& membership) {
  std::set<std::string> servers;
  for (const Member& each : membership.servers) servers.insert(each.host);
  return {
      .all = static_cast<int>(servers.size()),
      .without_worker = static_cast<int>(ServersElsewhere(membership).size())};
}

}  // namespace telegrad
