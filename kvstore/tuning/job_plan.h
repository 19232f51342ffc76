#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/job/path/worker_group.h"
#include "kvstore/options.h"
#include "topology/calibration.h"
#include "topology/plan.h"

// How all workers of a job exchange their tensors: worker 0 goes on from the
// plan of the job's data path.
namespace telegrad {

struct ExchangePlan {
  Plan plan = {};  // without a digest: there is none
  // Why there is none, and what was missing; worker 0 has them.
  std::vector<std::string> notes = {};
};

// All workers call it, before Init or after it. Of `request` the exchange
// counts (profile, codecs, chunks, computing) and who decided the aggregation:
// all else is the data path's. With a constraint on PlanRequest::aggregation it
// is what the job's servers do: fewer servers than machines count as machines
// of their own. Where nothing is decided by it (`is_used` is false) worker 0
// alone has it, and nobody waits. A plan that cannot be made is a note. One
// that JobOptions gives is taken where it fits. Errors: what worker 0 sent is
// no plan, or the given one does not fit (exit code 31); others are the
// group's.
absl::StatusOr<ExchangePlan> AgreeOnExchange(WorkerGroup& group,
                                             const Calibration& calibration,
                                             PlanRequest request, bool is_used);

// What a planner needs to know of tensors.
GradientProfile ProfileOf(absl::string_view name,
                          std::span<const TensorSpec> tensors);

// FailedPrecondition where a given plan is not for these tensors, or has a
// codec that this version has not.
absl::Status CheckPlanFor(const GivenPlan& given, absl::string_view name,
                          std::span<const TensorSpec> tensors);

// Gives tensors, for Init, the chunks of a plan for them; of a given one the
// codecs, too, which are then decided for good.
void GiveTensors(const Plan& plan, bool is_given,
                 std::span<TensorSpec> tensors);

}  // namespace telegrad
