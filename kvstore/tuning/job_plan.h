#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/job/path/worker_group.h"
#include "kvstore/options.h"
#include "topology/calibration.h"
#include "topology/plan.h"

// One plan for all workers of a job: worker 0 makes it from what the job's data
// path was planned from, and sends it to the others.
namespace telegrad {

struct JobPlan {
  Plan plan = {};    // without a digest: there is none
  int machines = 1;  // with workers
  // Why there is none, and what was missing; worker 0 has them.
  std::vector<std::string> notes = {};
};

// All workers call it, before Init or after it. Of `request` the exchange
// counts (profile, codecs, chunks, computing) and who decided the aggregation:
// network, cards and connections are those of the data path. With a constraint
// on PlanRequest::aggregation it is what the job's servers do: fewer servers
// than machines count as machines of their own. A plan that cannot be made is a
// note. A plan that JobOptions gives is taken where it fits. Errors: what
// worker 0 sent is no plan, or the given one does not fit (exit code 31);
// others are the group's.
absl::StatusOr<JobPlan> AgreeOnPlan(WorkerGroup& group,
                                    const Calibration& calibration,
                                    PlanRequest request);

// What a planner needs to know of tensors.
GradientProfile ProfileOf(absl::string_view name,
                          std::span<const TensorSpec> tensors);

// FailedPrecondition where a given plan is not for these tensors, or has a
// codec that this version has not.
absl::Status CheckPlanFor(const GivenPlan& given, absl::string_view name,
                          std::span<const TensorSpec> tensors);

// Gives tensors, for Init, the chunks of a plan for them; GiveCodecs its
// codecs, which are then decided for good.
void GiveChunks(const Plan& plan, std::span<TensorSpec> tensors);
void GiveCodecs(const Plan& plan, std::span<TensorSpec> tensors);

}  // namespace telegrad
