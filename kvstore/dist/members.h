#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transport/bootstrap.h"
#include "transport/transport.h"

// What the members of a job have to agree on before data flows, and where they
// are.
namespace telegrad {

// The transports that this host can use, best first: what `options` name, and
// for "auto" what other hosts may need instead.
std::vector<TransportOptions> TransportsOf(const TransportOptions& options);

// These as an offer, without addresses.
TransportOffers OffersOf(const std::vector<TransportOptions>& transports,
                         const TransportOptions& options);

// Takes back the i-th, which could not be made; the others are left.
void Withdraw(size_t i, const absl::Status& why,
              std::vector<TransportOptions>& transports,
              TransportOffers& offers);

// The index into `transports` of what the job has settled on; 0 where it has on
// nothing.
size_t SettledIndex(const Membership& membership,
                    const std::vector<TransportOptions>& transports);

// What the job uses, and why.
TransportChoice SettledChoice(const Membership& membership,
                              const TransportOptions& options);

// The number of hosts with servers where none of these has a worker, else 0.
int NumServerMachines(const Membership& membership);

}  // namespace telegrad
