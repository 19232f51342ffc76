#include "topology/plan.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "topology/path.h"
#include "topology/planner/exchange.h"
#include "topology/planner/network.h"
#include "topology/planner/rails.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

constexpr int kMaxMachines = 1'000'000;
constexpr int64_t kMaxChunkBytes = int64_t{1} << 40;
constexpr double kManyStreamsGbps = 25;
constexpr double kBytesPerGbit = 1e9 / 8;

absl::Status CheckRequest(const PlanRequest& request) {
  const auto is_count = [](int count) {
    return count >= 0 && count <= kMaxMachines;
  };
  if (!is_count(request.workers) || !is_count(request.servers)) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.workers, " workers and ", request.servers,
                     " servers: expected 0 to ", kMaxMachines, " of each"));
  }
  if (!(request.link_gbps >= 0 && request.link_gbps <= 1e6)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a link of %g Gb/s: expected 0 to 1000000", request.link_gbps));
  }
  if (!(request.compute_s >= 0) || !std::isfinite(request.compute_s)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%g s of computing: expected 0 or more", request.compute_s));
  }
  const size_t tensors = request.profile.tensors.size();
  if (tensors == 0) {
    return absl::InvalidArgumentError("a plan needs a profile with tensors");
  }
  const size_t count = request.tensor_codecs.size();
  if (count != 0 && count != tensors) {
    return absl::InvalidArgumentError(absl::StrCat(
        "codecs of ", count, " tensors for a profile of ", tensors));
  }
  if (request.chunk_bytes < 0 || request.chunk_bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks of ", request.chunk_bytes,
                     " bytes: expected 0 to ", kMaxChunkBytes));
  }
  return absl::OkStatus();
}

std::vector<const Machine*> Sorted(std::span<const Machine> machines) {
  std::vector<const Machine*> sorted;
  for (const Machine& machine : machines) sorted.push_back(&machine);
  std::stable_sort(
      sorted.begin(), sorted.end(), [](const Machine* a, const Machine* b) {
        return std::tie(a->host, a->source) < std::tie(b->host, b->source);
      });
  return sorted;
}

// What ranks must agree on of one machine.
std::string Canonical(const MachinePlan& machine) {
  std::string text = absl::StrCat("machine ", machine.host, "\n");
  for (const GpuPlan& gpu : machine.gpus) {
    absl::StrAppend(&text, "gpu ", gpu.gpu, " ", Name(gpu.memory), "\n");
    for (const Rail& rail : gpu.rails) {
      absl::StrAppend(&text, "rail ", rail.nic, " ", rail.port, " ", rail.gid,
                      " ", rail.users, "\n");
    }
  }
  return text;
}

}  // namespace

std::string PlanFacts(const Plan& plan) {
  std::string text =
      absl::StrCat("plan-1 ", Name(plan.network), " ", Name(plan.aggregation),
                   " ", plan.is_hierarchical ? 1 : 0, " ", plan.workers, " ",
                   plan.servers, " ", plan.mtu, " ", plan.connections, "\n");
  for (const TensorPlan& each : plan.tensors) {
    absl::StrAppend(&text, each.name, " ", each.elems, " ", each.codec, " ",
                    each.chunk_bytes, " ", each.priority, "\n");
  }
  for (const MachinePlan& each : plan.machines) {
    absl::StrAppend(&text, Canonical(each));
  }
  return text;
}

namespace {

bool UsesBond(const Machine& machine) {
  return std::any_of(machine.interfaces.begin(), machine.interfaces.end(),
                     [](const NetInterface& each) {
                       return each.kind == NetInterface::Kind::kBond;
                     });
}

// MTU and number of connections.
void ChooseSmallNumbers(std::span<const Machine* const> machines,
                        const FixedByRun& fixed, Plan* plan) {
  int most = 0;
  bool bond = false;
  for (const Machine* machine : machines) {
    const int mtu = LeastMtu(*machine, plan->network);
    bond = bond || UsesBond(*machine);
    most = std::max(most, mtu);
    if (mtu > 0 && (plan->mtu == 0 || mtu < plan->mtu)) plan->mtu = mtu;
  }
  if (plan->mtu < most) {
    plan->warnings.push_back(absl::StrCat("MTUs differ, ", plan->mtu, " to ",
                                          most, " bytes; ", plan->mtu,
                                          " is used"));
  }
  PlannedConnections planned = ConnectionsOver(
      plan->network, plan->link_bytes_per_s / kBytesPerGbit, bond);
  if (!fixed.connections_why.empty()) {
    planned = {fixed.connections, fixed.connections_why};
  }
  plan->connections = planned.connections;
  if (planned.reason.empty()) return;
  plan->reasons.push_back(
      absl::StrCat(planned.connections, " connections: ", planned.reason));
}

void WarnOfMixedMemory(Plan* plan) {
  size_t gdr = 0;
  size_t gpus = 0;
  for (const MachinePlan& machine : plan->machines) {
    for (const GpuPlan& gpu : machine.gpus) {
      if (gpu.gpu.empty()) continue;
      ++gpus;
      gdr += gpu.memory == MemoryPath::kGdr ? 1 : 0;
    }
  }
  if (gdr > 0 && gdr < gpus) {
    plan->warnings.push_back(absl::StrCat(
        "only ", gdr, " of ", gpus,
        " GPUs use GPUDirect RDMA both ways; the others set the pace"));
  }
}

// By host; those of one name by what ranks agree on, so that the order in which
// they came does not matter.
void SortMachines(std::vector<MachinePlan>* machines) {
  std::vector<std::pair<std::string, size_t>> keys;
  for (size_t i = 0; i < machines->size(); ++i) {
    keys.emplace_back(Canonical((*machines)[i]), i);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<MachinePlan> sorted;
  for (const auto& [key, i] : keys) {
    sorted.push_back(std::move((*machines)[i]));
  }
  *machines = std::move(sorted);
}

// Everything but the exchange: network, rails, memory.
absl::StatusOr<Plan> PlanMachines(std::span<const Machine* const> machines,
                                  const PlanRequest& request) {
  Plan plan;
  const auto count = static_cast<int>(machines.size());
  plan.workers = request.workers > 0 ? request.workers
                                     : std::max(1, count - request.servers);
  plan.servers = request.servers;
  plan.chunk_bytes = request.chunk_bytes;
  RETURN_IF_ERROR(ChooseNetwork(machines, request, &plan));
  for (const Machine* machine : machines) {
    ASSIGN_OR_RETURN(MachinePlan each, ChooseRails(*machine, plan, request));
    plan.machines.push_back(std::move(each));
  }
  SortMachines(&plan.machines);
  WarnOfMixedMemory(&plan);
  return plan;
}

}  // namespace

PlannedConnections ConnectionsOver(NetworkKind network, double gbps,
                                   bool is_bond) {
  if (network == NetworkKind::kTcp && gbps >= kManyStreamsGbps) {
    return {4, absl::StrFormat("one TCP stream does not fill %g Gb/s", gbps)};
  }
  if (network != NetworkKind::kLocal && is_bond) {
    return {2, "a bond spreads by connection"};
  }
  return {};
}

absl::StatusOr<Plan> MakePlan(std::span<const Machine> machines,
                              const Calibration& calibration,
                              const PlanRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  RETURN_IF_ERROR(CheckCalibration(calibration));
  const std::vector<const Machine*> sorted = Sorted(machines);
  ASSIGN_OR_RETURN(Plan plan, PlanMachines(sorted, request));
  const Prospect prospect = MakeProspect(calibration, request, &plan);
  RETURN_IF_ERROR(ChooseExchange(calibration, request, prospect, &plan));
  ChooseSmallNumbers(sorted, request.fixed, &plan);
  plan.digest = Sha256Hex(PlanFacts(plan));
  return plan;
}

absl::StatusOr<Plan> RevisePlan(const Plan& old,
                                std::span<const Machine> machines,
                                const Calibration& calibration,
                                const PlanRequest& request, double margin) {
  ASSIGN_OR_RETURN(Plan fresh, MakePlan(machines, calibration, request));
  Plan kept = fresh;
  kept.aggregation = old.aggregation;
  kept.codec = old.codec;
  kept.tensors = old.tensors;
  Plan scratch = fresh;
  const Prospect prospect = MakeProspect(calibration, request, &scratch);
  const bool is_same_job =
      old.network == fresh.network && old.workers == fresh.workers &&
      old.servers == fresh.servers &&
      std::equal(old.tensors.begin(), old.tensors.end(), fresh.tensors.begin(),
                 fresh.tensors.end(),
                 [](const TensorPlan& a, const TensorPlan& b) {
                   return a.name == b.name && a.elems == b.elems;
                 });
  if (!is_same_job || !Predict(calibration, prospect, &kept).ok()) {
    fresh.reasons.push_back("changed: the old plan does not fit any more");
    return fresh;
  }
  const double gain = kept.exposed_s - fresh.exposed_s;
  const double step_s = request.compute_s + kept.exposed_s;
  if (gain > margin * step_s) {
    fresh.reasons.push_back(absl::StrFormat(
        "changed: a step takes %.4g ms less than with the old plan",
        1e3 * gain));
    return fresh;
  }
  kept.reasons.push_back(absl::StrFormat(
      "kept %s with %s: changing would save %.4g ms of a step of %.4g ms, not "
      "more than %g %%",
      Name(kept.aggregation), kept.codec, 1e3 * gain, 1e3 * step_s,
      100 * margin));
  kept.digest = Sha256Hex(PlanFacts(kept));
  return kept;
}

}  // namespace telegrad
