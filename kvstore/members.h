#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/store_link.h"
#include "kvstore/worker_group.h"

// What the members of a job have to agree on before data flows, and where they
// are.
namespace telegrad {

// What this host can use, looked at once.
struct OwnTransports {
  TransportChoice choice = {};
  // Best first: what the options name, and for "auto" what other hosts may need
  // instead.
  std::vector<TransportOptions> transports = {};
  TransportOffers offers = {};  // these, without addresses
  bool has_auto_connections = false;
};
OwnTransports TransportsOf(const JobOptions& options);
// These without what cannot be made here.
absl::StatusOr<OwnTransports> UsableTransports(const JobOptions& options);

// What members must have the same of how data travels, besides the transport,
// on which they settle: what the options come to.
Facts TransportFacts(Role role, const JobOptions& options,
                     const TransportChoice& choice);

// Offers as many connections as this host needs (ChooseConnections). With rails
// it is one for each, whatever devices they are: other hosts have others.
void OfferConnections(const ConnectionChoice& found, OwnTransports& own);

// Takes back the i-th, which could not be made; the others are left, with the
// connections that the first of them needs.
void Withdraw(size_t i, const absl::Status& why, OwnTransports& own);

// The index into `own.transports` of what the job has settled on; 0 where it
// has on nothing.
size_t SettledIndex(const Membership& membership, const OwnTransports& own);

// What the job uses, and why.
TransportChoice SettledChoice(const Membership& membership,
                              const TransportChoice& own);
ConnectionChoice SettledConnections(const Membership& membership,
                                    const TransportOffers& own);

// The ranks of the first servers of hosts that have no worker.
std::vector<int> ServersElsewhere(const Membership& membership);

ServerMachines ServerMachinesOf(const Membership& membership);

}  // namespace telegrad
