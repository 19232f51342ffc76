#pragma once

#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// Models, UUIDs, compute capabilities and NVLinks of the GPUs, by NVIDIA's
// management library (libnvidia-ml.so.1), which the driver brings; without it
// nothing changes.
void AddNvmlFacts(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad
