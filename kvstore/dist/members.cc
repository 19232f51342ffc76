#include "kvstore/dist/members.h"

#include <cstddef>
#include <set>

#include "base/log.h"

namespace telegrad {

std::vector<TransportOptions> TransportsOf(const TransportOptions& options) {
  const TransportChoice choice = ChooseTransport(options);
  std::vector<TransportOptions> transports = {options};
  transports[0].name = choice.name;
  transports[0].tls = choice.tls;
  if (choice.may_be_tcp) {
    transports.push_back(options);
    transports[1].name = "tcp";
  }
  return transports;
}

TransportOffers OffersOf(const std::vector<TransportOptions>& transports,
                         const TransportOptions& options) {
  TransportOffers offers{.why = ChooseTransport(options).reason};
  for (const TransportOptions& each : transports) {
    offers.names.push_back(each.name);
  }
  return offers;
}

void Withdraw(size_t i, const absl::Status& why,
              std::vector<TransportOptions>& transports,
              TransportOffers& offers) {
  const auto place = static_cast<ptrdiff_t>(i);
  LogWarning("transport ", transports[i].name,
             " is not offered: ", why.message());
  if (i == 0) offers.why = std::string(why.message());
  transports.erase(transports.begin() + place);
  offers.names.erase(offers.names.begin() + place);
}

size_t SettledIndex(const Membership& membership,
                    const std::vector<TransportOptions>& transports) {
  for (size_t i = 0; i < transports.size(); ++i) {
    if (transports[i].name == membership.transport) return i;
  }
  return 0;
}

TransportChoice SettledChoice(const Membership& membership,
                              const TransportOptions& options) {
  TransportChoice choice = ChooseTransport(options);
  if (membership.transport.empty() || membership.transport == choice.name) {
    return choice;
  }
  return {.name = membership.transport,
          .reason = membership.transport_reason,
          .tls = choice.tls};
}

int NumServerMachines(const Membership& membership) {
  std::set<std::string> workers;
  for (const Member& each : membership.workers) workers.insert(each.host);
  std::set<std::string> servers;
  for (const Member& each : membership.servers) {
    if (workers.contains(each.host)) return 0;
    servers.insert(each.host);
  }
  return static_cast<int>(servers.size());
}

}  // namespace telegrad
