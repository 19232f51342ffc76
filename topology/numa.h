#pragma once

#include "absl/strings/string_view.h"
#include "topology/machine.h"
#include "topology/system_root.h"

namespace telegrad {

// The NUMA node on which the GPU with this address ("0000:81:00.0") hangs: the
// host's memory there is nearest to it. -1: any is as good, as there is one
// node only, or nothing says which.
int NumaNodeOf(const Machine& machine, absl::string_view bus_id);

// As above, by what this machine or a recorded one shows of its GPUs.
int NumaNodeOf(const SysRoot& root, absl::string_view bus_id);

}  // namespace telegrad
