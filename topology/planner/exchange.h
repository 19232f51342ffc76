#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/plan.h"

namespace telegrad {

// What the planner predicts with for one job, and how sure it is.
struct Estimate {
  ClusterCost cluster = {};
  double link_spread = 0;     // relative
  bool link_known = false;    // by a run, a port or the user
  double reduce_spread = 0;   // relative
  bool rates_differ = false;  // by more than 1.5 among machines
  double backward_s = 0;
  // When each tensor is ready, in forward order.
  std::vector<double> ready_s = {};
};

// Collects it from the network and machines of `plan`, the calibration and the
// request; notes in `plan` where the link's rate comes from.
Estimate MakeEstimate(const Calibration& calibration,
                      const PlanRequest& request, Plan* plan);

// Decides aggregation, codec and chunks of each tensor in `plan`, and predicts.
absl::Status ChooseExchange(const Calibration& calibration,
                            const PlanRequest& request,
                            const Estimate& estimate, Plan* plan);

// Predicts a step with the plan's aggregation and tensors.
absl::Status Predict(const Calibration& calibration, const Estimate& estimate,
                     Plan* plan);

}  // namespace telegrad
