#pragma once

#include "topology/detect/pci.h"
#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad::detect {

// Name, architecture, CPUs, NUMA nodes; virtual machine and container.
void AddHost(const SysRoot& root, Machine& machine);

// Limits and modules of the kernel, device nodes, IOMMU, ACS.
void AddCapabilities(const SysRoot& root, const PciTree& pci, Machine& machine);

}  // namespace telegrad::detect
