#pragma once

#include <string>

#include "topology/machine.h"

namespace telegrad::hwloc {

// Whether something is not known that FillFrom may fill: the numbers of
// processors and NUMA nodes, or where a card or GPU with a bus id hangs (on
// a machine of one NUMA node: under which host bridge).
bool LeavesOpen(const Machine& machine);

// Takes of `other`, the same machine as `source` sees it ("hwloc 2.9.0"), what
// is not known yet, and notes each. Nothing that is known changes.
void FillFrom(const Machine& other, const std::string& source,
              Machine& machine);

}  // namespace telegrad::hwloc
