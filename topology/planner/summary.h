#pragma once

#include "topology/plan.h"

namespace telegrad {

inline constexpr char kPlanSchema[] = "telegrad-plan-1";

// Adds what all of the plan says: cards, memory, chunks, priority; brings the
// decisions in order.
void Summarise(const PlanRequest& request, Plan* plan);
// The part of it that PlanPath decides.
void SummarisePath(Plan* plan);

}  // namespace telegrad
