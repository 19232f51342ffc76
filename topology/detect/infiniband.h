#pragma once

#include "topology/detect/pci.h"
#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad::detect {

// Every device of class/infiniband with its ports; needs machine.interfaces.
void AddRdmaNics(const SysRoot& root, const PciTree& pci,
                 const TopologyOptions& options, Machine& machine);

// "400 Gb/sec (4X NDR)" -> 400 and 4 lanes; "0 GB/sec" is unknown.
struct PortRate {
  double gbps = 0;  // 0: unknown
  int lanes = 0;    // 0: unknown
};
PortRate ParsePortRate(absl::string_view text);

// The largest InfiniBand MTU that fits into the interface's, less 96 bytes of
// headers (the kernel's iboe_get_mtu); 0: none.
int RoceMtu(int interface_mtu);

// active_mtu of a port of Ethernet, by its interface; InfiniBand's own is not
// in sysfs.
void FillRoceMtu(const Machine& machine, Port& port);

}  // namespace telegrad::detect
