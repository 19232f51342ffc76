#pragma once

#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// UCX's version, whether it handles CUDA memory, and whether it has an RDMA
// device.
void AddUcxFacts(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad
