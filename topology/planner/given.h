#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "topology/plan.h"

namespace telegrad {

// The plan that `request` was given, checked against the machines and all else
// that the request says. `has_tensors`: of the profile as well.
// FailedPrecondition names what does not fit.
absl::StatusOr<Plan> ObeyGiven(std::span<const Machine* const> machines,
                               const PlanRequest& request, bool has_tensors);

}  // namespace telegrad
