#pragma once

#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// The architecture and the interfaces' addresses, by uname and getifaddrs.
void AddPosixFacts(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad
