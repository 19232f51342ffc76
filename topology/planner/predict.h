#pragma once

#include <map>
#include <string>
#include <vector>

#include "topology/planner/exchange.h"

namespace telegrad {

// By the names of codecs; pipelines have "none" too.
using Costs = std::map<std::string, CodecCost>;
using Pipelines = std::map<std::string, Pipeline>;

Pipelines PipelinesOf(Aggregation aggregation, const ClusterCost& cluster,
                      const Costs& costs);

struct Times {
  double comm_s = 0;
  double exposed_s = 0;  // what backward does not hide of it
};

// Times of a step; `pipelines` has the codec of each of `tensors`.
Times PredictTimes(const Pipelines& pipelines,
                   const std::vector<TensorPlan>& tensors,
                   const Estimate& estimate);

// Says in `plan` where servers beside the workers are faster than what they
// are constrained to.
absl::Status Advise(const Calibration& calibration, const Estimate& estimate,
                    Plan* plan);

}  // namespace telegrad
