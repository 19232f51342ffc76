#pragma once

#include <vector>

#include "topology/plan.h"

namespace telegrad {

// Numbers of the workers' hosts; none where each has the link for itself.
std::vector<int> HostsOf(const PlanRequest& request);
// Adds to a path's plan where its workers are, and how groups of all of them
// sum.
void ChooseSumsOfWorkers(const PlanRequest& request, Plan* plan);
// How groups would sum with a worker for each GPU, or each machine without.
void ChooseSumsOfMachines(const PlanRequest& request,
                          const ClusterCost& cluster, Plan* plan);

}  // namespace telegrad
