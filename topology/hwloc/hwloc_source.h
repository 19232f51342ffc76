#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// What libhwloc sees of this machine, as the XML that lstopo writes:
// processors, NUMA nodes, the PCI tree and the devices of the operating system
// in it. Its components for GPUs are left out: they start OpenCL, CUDA and X.
absl::StatusOr<std::string> XmlOfHwloc();

// Fills what others left open (hwloc::FillFrom); libhwloc is asked
// only where something is.
void AddHwlocFacts(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad
