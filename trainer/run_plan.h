#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/job_plan.h"
#include "trainer/worker_run.h"

namespace telegrad {

// Variables that choose the network and must be the same on all workers, for
// DistOptions::facts.
Facts NetworkVariables();

// Agrees with the other workers on the plan for `tensors`, shows it and keeps
// it in the context; nothing for a single worker. After the store's Init.
// Errors as AgreeOnPlan.
absl::Status PlanRun(RunContext& context, std::span<const TensorSpec> tensors);

}  // namespace telegrad
