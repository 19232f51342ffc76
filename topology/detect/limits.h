#pragma once

#include "topology/machine.h"
#include "topology/system_root.h"

namespace telegrad::detect {

// What holds a process below its machine: the CPUs that it may run on, its
// control groups (version 1 and 2, by their mounts, up to the root), and the
// size of /dev/shm.
void AddLimits(const SysRoot& root, Capabilities& capabilities);

}  // namespace telegrad::detect
