#include "topology/planner/predict.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

// A part of a prediction; less is no advice.
constexpr double kLeastGain = 0.05;

}  // namespace

Pipelines PipelinesOf(Aggregation aggregation, const ClusterCost& cluster,
                      const Costs& costs) {
  Pipelines pipelines = {
      {"none", MakePipeline(aggregation, cluster, DenseCost(cluster))}};
  for (const auto& [name, cost] : costs) {
    pipelines[name] = MakePipeline(aggregation, cluster, cost);
  }
  return pipelines;
}

Times PredictTimes(const Pipelines& pipelines,
                   const std::vector<TensorPlan>& tensors,
                   const Estimate& estimate) {
  std::vector<TensorCost> costs;
  std::vector<TensorCost> at_once;
  for (size_t i = tensors.size(); i-- > 0;) {  // as backward makes them
    const Pipeline& pipeline = pipelines.at(tensors[i].codec);
    costs.push_back({&pipeline, tensors[i].elems, tensors[i].chunk_bytes / 4,
                     estimate.ready_s[i]});
    at_once.push_back(costs.back());
    at_once.back().ready_s = 0;
  }
  return {FinishSeconds(at_once),
          std::max(0.0, FinishSeconds(costs) - estimate.backward_s)};
}

absl::Status Predict(const Calibration& calibration, const Estimate& estimate,
                     Plan* plan) {
  if (plan->tensors.size() != estimate.ready_s.size()) {
    return absl::FailedPreconditionError("the plan is for other tensors");
  }
  Costs costs;
  for (const TensorPlan& tensor : plan->tensors) {
    if (tensor.codec == "none" || costs.contains(tensor.codec)) continue;
    const CodecFigures* figures = calibration.FindCodec(tensor.codec);
    if (figures == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("the calibration knows no codec ", tensor.codec));
    }
    ASSIGN_OR_RETURN(costs[tensor.codec], CostOf(*figures, estimate.cluster));
  }
  const Times times =
      PredictTimes(PipelinesOf(plan->aggregation, estimate.cluster, costs),
                   plan->tensors, estimate);
  plan->comm_s = times.comm_s;
  plan->exposed_s = times.exposed_s;
  return absl::OkStatus();
}

absl::Status Advise(const Calibration& calibration, const Estimate& estimate,
                    Plan* plan) {
  constexpr Aggregation kOther = Aggregation::kColocatedServers;
  if (plan->workers < 2 || plan->aggregation == kOther) return absl::OkStatus();
  const double margin =
      std::max(kLeastGain, estimate.link_spread + estimate.reduce_spread);
  // What a server's link carried is what a machine's carries.
  Estimate of_other = estimate;
  of_other.cluster.bytes_per_s =
      std::max(of_other.cluster.bytes_per_s,
               std::exchange(of_other.cluster.server_bytes_per_s, 0));
  Plan other = *plan;
  other.aggregation = kOther;
  RETURN_IF_ERROR(Predict(calibration, of_other, &other));
  if (other.comm_s >= plan->comm_s * (1 - margin)) return absl::OkStatus();
  plan->advised = kOther;
  plan->decisions.push_back(
      {.what = Decision::Kind::kAdvice,
       .choice = Name(kOther),
       .why = absl::StrFormat("%.4g ms predicted of a step's communication, "
                              "%.4g ms with %s",
                              1e3 * other.comm_s, 1e3 * plan->comm_s,
                              Name(plan->aggregation))});
  return absl::OkStatus();
}

}  // namespace telegrad
