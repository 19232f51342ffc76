#pragma once

#include "topology/plan.h"

namespace telegrad {

// Adds what all of the plan says: cards, memory, chunks, priority; brings the
// decisions in order.
void Summarise(const PlanRequest& request, Plan* plan);

}  // namespace telegrad
