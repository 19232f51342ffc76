#pragma once

#include <string>
#include <vector>

#include "topology/machine.h"
#include "topology/options.h"
#include "topology/system_root.h"

namespace telegrad::detect {

// Reads the GID table of a port's folder ("/sys/class/infiniband/X/ports/1"):
// sets `gids`, at most 4096, and `gid_rows`.
void ReadGids(const SysRoot& root, const std::string& folder, Port& port);

GidScope ScopeOf(const std::array<uint8_t, 16>& raw);
std::string ToText(const std::array<uint8_t, 16>& raw);  // "::ffff:192.0.2.1"

// The row in use tells the version of RoCE best: sets a RoCE port's fabric.
void TakeRoceVersion(const Gid& row, Port& port);

// Sets chosen_gid, net_interface and fabric of a RoCE port: rows that are not
// link local; RoCE v2 before v1, the wanted interface, then a physical one or a
// bond, a VLAN, others; IPv4 before IPv6; then the lowest index. `name` is for
// the reasons: "mlx5_1/1".
void ChooseRoceGid(const Machine& machine, const TopologyOptions& options,
                   const std::string& name, Port& port);

}  // namespace telegrad::detect
