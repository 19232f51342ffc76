#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/machine.h"
#include "topology/options.h"
#include "topology/system_root.h"

namespace telegrad {

// What /sys, /proc and /dev below `root` show: network cards, GPUs, the PCI
// tree, kernel modules and limits. Of the live machine also what the libraries
// of this build say (verbs, UCX, libfabric, NVIDIA's driver). A file that is
// missing, unreadable or wrong makes a fact unknown, with the reason; it is no
// error. Then FillPaths. Errors: none so far.
absl::StatusOr<Machine> DetectMachine(const SysRoot& root,
                                      const TopologyOptions& options);

// Whether the interface with this name is a bond, or a VLAN or bridge over one.
bool IsOverBond(std::span<const NetInterface> interfaces,
                const std::string& name);

// What the user says instead (TELEGRAD_GID_INDEX, TELEGRAD_NICS,
// TELEGRAD_LINK_GBPS, TELEGRAD_GDR), over the facts of any machine;
// DetectMachine has done it.
void ApplyOverrides(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad
