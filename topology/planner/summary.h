#pragma once

#include "topology/plan.h"

namespace telegrad {

inline constexpr char kPlanSchema[] = "telegrad-plan-2";

// Adds what all of the plan says: of the path cards and memory, of the exchange
// chunks and priority. Each brings the decisions in order.
void SummarisePath(Plan* plan);
void SummariseExchange(const PlanRequest& request, Plan* plan);

}  // namespace telegrad
