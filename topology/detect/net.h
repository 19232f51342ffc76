#pragma once

#include <string>
#include <vector>

#include "topology/detect/pci.h"
#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad::detect {

// Every readable entry of class/net, by name; notes for those that are not.
void AddInterfaces(const SysRoot& root, Machine& machine);

// Physical Ethernet interfaces that no RDMA device of `machine` has, as network
// cards of their own.
void AddEthernetNics(const SysRoot& root, const PciTree& pci, Machine& machine);

// The interface with this name; null when there is none.
const NetInterface* FindInterface(const Machine& machine,
                                  const std::string& name);

// Address, slot and ids of the PCI function that `path` leads to.
void FillPci(const SysRoot& root, const PciTree& pci, const std::string& path,
             Nic& nic);

}  // namespace telegrad::detect
