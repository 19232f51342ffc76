#pragma once

#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad::detect {

// What the libraries of this build say about the live machine, after sysfs; in
// topology/registry.cc.
void AddLiveFacts(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad::detect
