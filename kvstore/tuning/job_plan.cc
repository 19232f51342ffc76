#include "kvstore/tuning/job_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "topology/apply.h"

namespace telegrad {
namespace {

// What the job's servers are to a plan of machines.
void SetServers(const Membership& membership, PlanRequest& request) {
  if (!request.aggregation.is_set()) return;
  std::set<std::string> hosts;
  for (const Member& each : membership.servers) hosts.insert(each.host);
  const auto all = static_cast<int>(hosts.size());
  Aggregation& aggregation = request.aggregation.value;
  const bool are_beside = request.servers == 0;
  if (are_beside && request.workers == 1) {
    aggregation = Aggregation::kLocal;
  } else if (are_beside && all >= request.workers) {
    aggregation = Aggregation::kColocatedServers;
  } else {
    // A server that stands beside a worker of many serves mostly others.
    request.servers = all;
    aggregation = Aggregation::kDedicatedServers;
  }
}

// `request` with what the data path has settled.
PlanRequest OnPath(const WorkerGroup& group, PlanRequest request) {
  const DataPath& path = group.data_path();
  const PlanRequest& basis = path.basis.request;
  request.workers = basis.workers;
  request.servers = basis.servers;
  request.network = basis.network;
  request.tls = basis.tls;
  request.rails = basis.rails;
  request.bound = basis.bound;
  request.transports = basis.transports;
  request.host_memory = basis.host_memory;
  request.connections = basis.connections;
  const Decision* connections =
      FindDecision(path.plan, Decision::Kind::kConnections);
  if (!request.connections.is_set() && connections != nullptr) {
    request.connections = {path.plan.connections, connections->why};
  }
  SetServers(group.membership(), request);
  return request;
}

// What worker 0 sends: the plan, or "!" and why there is none.
std::string PlanText(absl::StatusOr<Plan>& plan) {
  if (!plan.ok()) return absl::StrCat("!", plan.status().message());
  std::string text = PlanToJson(*plan);
  if (text.size() <= kMaxGatherBytes) return text;
  for (Decision& each : plan->decisions) each.evidence.clear();
  text = PlanToJson(*plan);
  return text.size() <= kMaxGatherBytes
             ? text
             : absl::StrCat("!it has ", text.size(), " bytes, beyond ",
                            kMaxGatherBytes);
}

}  // namespace

absl::StatusOr<JobPlan> AgreeOnPlan(WorkerGroup& group,
                                    const Calibration& calibration,
                                    PlanRequest request) {
  const DataPath& path = group.data_path();
  JobPlan job{.machines = std::max(1, path.plan.workers)};
  std::string mine;
  if (group.rank() == 0) {
    request = OnPath(group, std::move(request));
    absl::StatusOr<Plan> plan =
        MakePlan(path.basis.machines, calibration, request);
    if (const Decision* tier_one =
            FindDecision(path.plan, Decision::Kind::kTierOne);
        tier_one != nullptr && plan.ok()) {
      plan->decisions.push_back(*tier_one);
      std::ranges::stable_sort(plan->decisions, {}, &Decision::what);
    }
    mine = PlanText(plan);
    job.notes = path.basis.notes;
    if (plan.ok() && mine[0] != '!') job.plan = *std::move(plan);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   group.Gather("plan", mine));
  const std::string& text = all[0];
  if (!text.empty() && text[0] == '!') {
    job.notes.push_back(absl::StrCat("none: ", text.substr(1)));
    return job;
  }
  if (group.rank() == 0) return job;
  absl::StatusOr<Plan> plan = PlanFromJson(text);
  if (!plan.ok()) {
    return WithExitCode(ExitCode::kMismatch,
                        absl::FailedPreconditionError(absl::StrCat(
                            "of worker/0: ", plan.status().message())));
  }
  job.plan = *std::move(plan);
  return job;
}

}  // namespace telegrad
