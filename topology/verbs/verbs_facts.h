#pragma once

#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// Whether each RDMA device can be opened, and its ports' state and MTU, which
// win over sysfs. With options.probe also whether a device takes dmabuf, and
// whether it registers GPU memory.
void AddVerbsFacts(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad
