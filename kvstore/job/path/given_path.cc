#include <span>

#include "base/status_macros.h"
#include "kvstore/job/path/data_path.h"

// What is known of a given plan before its job begins.
namespace telegrad {

absl::Status CheckPath(const PathOptions& options) {
  if (options.given == nullptr) return CheckPath(options.transport);
  ASSIGN_OR_RETURN(const MemberFacts self,
                   LookAtSelf(options, ToString(NodeId{Role::kWorker, 0})));
  ASSIGN_OR_RETURN(PathRequest path,
                   RequestPath(std::span(&self, 1), options.given));
  // Who else there will be is not known here.
  const Plan& plan = options.given->plan;
  path.request.workers = plan.workers;
  path.request.servers = plan.servers;
  path.request.worker_hosts.clear();
  for (const MachinePlan& each : plan.machines) {
    path.request.bound.try_emplace(each.host);
  }
  return PlanPath(path.machines, path.request).status();
}

}  // namespace telegrad
