#pragma once

#include "topology/machine.h"
#include "topology/system_root.h"

namespace telegrad::detect {

// The verdict on GPUDirect RDMA from the other capabilities, with the libraries
// and the nearest path (FillPaths was called) among its evidence. Modules alone
// are a hint, a probe that registers GPU memory is proof: without one the
// verdict is no or unknown, unless TELEGRAD_GDR says otherwise.
void JudgeGdr(const SysRoot& root, Machine& machine);

}  // namespace telegrad::detect
