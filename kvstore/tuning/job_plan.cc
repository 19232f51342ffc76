#include "kvstore/tuning/job_plan.h"

#include <algorithm>
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

// `request` with what the data path was planned from.
PlanRequest OnPath(const WorkerGroup& group, PlanRequest request) {
  const PlanRequest& basis = group.data_path().basis.request;
  request.workers = basis.workers;
  request.servers = basis.servers;
  request.worker_hosts = basis.worker_hosts;
  request.given = basis.given;
  SetServers(group.membership(), request);
  return request;
}

absl::Status Unfit(absl::string_view why) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(why));
}

// What worker 0 sends: the plan, nothing of one that all were given, or "!" and
// why there is none.
std::string PlanText(const absl::StatusOr<Plan>& plan, bool is_given) {
  if (!plan.ok()) return absl::StrCat("!", plan.status().message());
  if (is_given) return "";
  const auto text = PlanToJson(*plan, kMaxGatherBytes);
  return text.ok() ? *text : absl::StrCat("!", text.status().message());
}

}  // namespace

absl::StatusOr<ExchangePlan> AgreeOnExchange(WorkerGroup& group,
                                             const Calibration& calibration,
                                             PlanRequest request,
                                             bool is_used) {
  const bool is_first = group.rank() == 0;
  if (!is_first && !is_used) return ExchangePlan();
  const DataPath& path = group.data_path();
  const GivenPlan* const given = group.options().path.given.get();
  ExchangePlan exchange{.notes = path.basis.notes};
  absl::StatusOr<Plan> plan;
  std::vector<std::string> all = {""};
  if (is_first) {
    plan =
        PlanExchange(path.plan, calibration, OnPath(group, std::move(request)));
    all[0] = PlanText(plan, given != nullptr);
  }
  if (is_used) {
    ASSIGN_OR_RETURN(all, group.Gather("plan", all[0]));
  }
  const std::string& text = all[0];
  if (text.starts_with('!')) {
    if (given != nullptr) return Unfit(text.substr(1));
    exchange.notes.push_back(absl::StrCat("none: ", text.substr(1)));
    return exchange;
  }
  if (!is_first) {
    plan = given != nullptr ? given->plan : PlanFromJson(text);
  }
  if (!plan.ok()) {
    return Unfit(absl::StrCat("of worker/0: ", plan.status().message()));
  }
  exchange.plan = *std::move(plan);
  return exchange;
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
  request.servers = given.plan.servers;
  request.given = std::shared_ptr<const GivenPlan>(&given, none);
  RETURN_IF_ERROR(CheckGivenExchange(request));
  for (const TensorPlan& each : given.plan.tensors) {
    const absl::Status codec = ParseCodecSpec(each.codec).status();
    if (codec.ok()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(given.by, " has codec '", each.codec, "' for ", each.name,
                     ": ", codec.message()));
  }
  return absl::OkStatus();
}

void GiveTensors(const Plan& plan, bool is_given,
                 std::span<TensorSpec> tensors) {
  for (size_t i = 0; i < std::min(tensors.size(), plan.tensors.size()); ++i) {
    const TensorPlan& planned = plan.tensors[i];
    tensors[i].chunk_elems = static_cast<size_t>(planned.chunk_bytes / 4);
    if (is_given) tensors[i].codec = planned.codec;
  }
}

}  // namespace telegrad
