#pragma once

#include <string>
#include <vector>

#include "transport/job/roster.h"

// Which transport a job's data takes, from what its members offer.
namespace telegrad {

struct SettledTransport {
  std::string name = {};    // empty: nobody offers any
  std::string reason = {};  // as Membership::transport_reason
  size_t connections = 0;   // as Membership's
  std::string connections_reason = {};
  std::string error = {};  // why there is none that all have
};

// The first that `members` have in common; those without offers do not count.
// The first of them with offers has the choice. Connections: what those have
// that leave it to nobody, which must be the same, else the most of all.
SettledTransport Settle(const std::vector<const RosterEntry*>& members);

// Where workers reach a member over it.
std::string AddressFor(const RosterEntry& member,
                       const SettledTransport& settled);

}  // namespace telegrad
