#pragma once

#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// libfabric's version, whether it has EFA, and whether an RDMA provider takes
// GPU memory.
void AddOfiFacts(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad
