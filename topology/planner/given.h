#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "topology/plan.h"

namespace telegrad {

// The path of the plan that `request` was given, checked against the machines
// and all else that the request says. FailedPrecondition names what does not
// fit.
absl::StatusOr<Plan> ObeyGiven(std::span<const Machine* const> machines,
                               const PlanRequest& request);

}  // namespace telegrad
