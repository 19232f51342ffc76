#pragma once

#include "topology/machine.h"

namespace telegrad::detect {

// What a port of an RDMA device speaks; link_layer alone does not say:
// Omni-Path and iWARP call themselves InfiniBand, EFA unknown. Adds the reason
// to chosen_gid.why, and for RoCE looks at the rows of the GID table.
void ClassifyFabric(const Nic& nic, Port& port);

}  // namespace telegrad::detect
