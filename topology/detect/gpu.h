#pragma once

#include "topology/detect/pci.h"
#include "topology/machine.h"

namespace telegrad::detect {

// NVIDIA's GPUs, by /proc/driver/nvidia/gpus and by PCI class and vendor;
// ascending bus id.
void AddGpus(const SysRoot& root, const PciTree& pci, Machine& machine);

}  // namespace telegrad::detect
