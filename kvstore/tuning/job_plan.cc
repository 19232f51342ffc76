#include "kvstore/tuning/job_plan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/job_options.h"
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
  request.given = basis.given;
  const Decision* connections =
      FindDecision(path.plan, Decision::Kind::kConnections);
  if (!request.connections.is_set() && connections != nullptr) {
    request.connections = {path.plan.connections, connections->why};
  }
  SetServers(group.membership(), request);
  return request;
}

// Puts the path's tier one in place of what a given plan says of another run's.
void TakeTierOne(const Plan& path, Plan& plan) {
  const auto is_of_hosts = [](const Decision& each) {
    return each.what == Decision::Kind::kTierOne;
  };
  std::erase_if(plan.decisions, is_of_hosts);
  std::ranges::copy_if(path.decisions, std::back_inserter(plan.decisions),
                       is_of_hosts);
  std::ranges::stable_sort(plan.decisions, {}, &Decision::what);
}

absl::Status Unfit(absl::string_view why) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(why));
}

// What worker 0 sends: the plan, or "!" and why there is none.
std::string PlanText(const absl::StatusOr<Plan>& plan) {
  if (!plan.ok()) return absl::StrCat("!", plan.status().message());
  const auto text = PlanToJson(*plan, kMaxGatherBytes);
  return text.ok() ? *text : absl::StrCat("!", text.status().message());
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
    if (plan.ok()) TakeTierOne(path.plan, *plan);
    mine = PlanText(plan);
    job.notes = path.basis.notes;
    if (plan.ok() && mine[0] != '!') job.plan = *std::move(plan);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   group.Gather("plan", mine));
  const std::string& text = all[0];
  if (!text.empty() && text[0] == '!') {
    if (group.options().path.given != nullptr) return Unfit(text.substr(1));
    job.notes.push_back(absl::StrCat("none: ", text.substr(1)));
    return job;
  }
  if (group.rank() == 0) return job;
  absl::StatusOr<Plan> plan = PlanFromJson(text);
  if (!plan.ok()) {
    return Unfit(absl::StrCat("of worker/0: ", plan.status().message()));
  }
  job.plan = *std::move(plan);
  return job;
}

GradientProfile ProfileOf(absl::string_view name,
                          std::span<const TensorSpec> tensors) {
  GradientProfile profile{.name = std::string(name)};
  for (const TensorSpec& tensor : tensors) {
    profile.tensors.push_back(
        {.name = tensor.name,
         .num_elems = static_cast<int64_t>(tensor.num_elems),
         .is_matrix = !absl::EndsWith(tensor.name, "bias")});
  }
  return profile;
}

absl::Status CheckPlanFor(const GivenPlan& given, absl::string_view name,
                          std::span<const TensorSpec> tensors) {
  const auto none = [](const GivenPlan*) {};
  PlanRequest request;
  request.profile = ProfileOf(name, tensors);
  request.workers = given.plan.workers;
  request.servers = given.plan.servers;
  request.given = std::shared_ptr<const GivenPlan>(&given, none);
  RETURN_IF_ERROR(MakePlan({}, AssumedCalibration(), request).status());
  for (const TensorPlan& each : given.plan.tensors) {
    const absl::Status codec = ParseCodecSpec(each.codec).status();
    if (codec.ok()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(given.by, " has codec '", each.codec, "' for ", each.name,
                     ": ", codec.message()));
  }
  return absl::OkStatus();
}

void GiveChunks(const Plan& plan, std::span<TensorSpec> tensors) {
  const std::vector<int64_t> chunks = Apply(plan, "").chunk_elems;
  for (size_t i = 0; i < std::min(tensors.size(), chunks.size()); ++i) {
    tensors[i].chunk_elems = static_cast<size_t>(chunks[i]);
  }
}

void GiveCodecs(const Plan& plan, std::span<TensorSpec> tensors) {
  const std::vector<std::string> codecs = Apply(plan, "").codecs;
  for (size_t i = 0; i < std::min(tensors.size(), codecs.size()); ++i) {
    tensors[i].codec = codecs[i];
  }
}

}  // namespace telegrad
