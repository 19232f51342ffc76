#pragma once

#include "topology/plan.h"

namespace telegrad {

// Whether the worker processes of a host sum before one of them pushes, and
// which. They do where that lets fewer bytes go between hosts.
void ChooseTierOne(const PlanRequest& request, Plan* plan);

}  // namespace telegrad
