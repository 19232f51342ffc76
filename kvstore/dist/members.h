#pragma once

#include <string>
#include <vector>

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
