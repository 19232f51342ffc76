#pragma once

#include "topology/plan.h"

namespace telegrad {

// Gives each GPU of a machine (or its CPU) ports of the plan's network, and a
// way for memory. FailedPrecondition where GPUDirect RDMA is asked for and
// impossible.
absl::StatusOr<MachinePlan> ChooseRails(const Machine& machine,
                                        const Plan& plan,
                                        const PlanRequest& request);

// Least MTU of the ports that the network can use; 0: unknown.
int LeastMtu(const Machine& machine, NetworkKind network);

}  // namespace telegrad
