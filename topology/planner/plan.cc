#include "topology/plan.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/apply.h"
#include "topology/detect.h"
#include "topology/path.h"
#include "topology/planner/exchange.h"
#include "topology/planner/given.h"
#include "topology/planner/network.h"
#include "topology/planner/rails.h"
#include "topology/planner/summary.h"
#include "topology/planner/sums.h"
#include "topology/planner/tier_one.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

constexpr int kMaxMachines = 1'000'000;
constexpr int64_t kMaxChunkBytes = int64_t{1} << 40;
constexpr double kManyStreamsGbps = 25;
constexpr double kBytesPerGbit = 1e9 / 8;

absl::Status CheckSize(const PlanRequest& request) {
  const auto is_count = [](int count) {
    return count >= 0 && count <= kMaxMachines;
  };
  if (!is_count(request.workers) || !is_count(request.servers)) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.workers, " workers and ", request.servers,
                     " servers: expected 0 to ", kMaxMachines, " of each"));
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const PlanRequest& request) {
  RETURN_IF_ERROR(CheckSize(request));
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
  if (request.chunk_bytes.is_set() &&
      (request.chunk_bytes.value < 1 ||
       request.chunk_bytes.value > kMaxChunkBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks of ", request.chunk_bytes.value,
                     " bytes: expected 1 to ", kMaxChunkBytes));
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
      absl::StrCat("plan-3 ", Name(plan.network), " ", plan.transport, " ",
                   plan.tls, " ", Name(plan.aggregation), " ",
                   plan.is_hierarchical ? 1 : 0, " ", plan.workers, " ",
                   plan.servers, " ", plan.mtu, " ", plan.connections, "\n");
  if (!plan.pushers.empty()) {
    absl::StrAppend(&text, "pushers ", absl::StrJoin(plan.pushers, " "), "\n");
  }
  if (!plan.sums.empty()) absl::StrAppend(&text, "sums");
  for (const SumRange& each : plan.sums) {
    absl::StrAppend(&text, " ", Name(each.way), " ", each.up_to_bytes);
  }
  if (!plan.sums.empty()) absl::StrAppend(&text, "\n");
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

// Whether the interface that a member is bound to goes over a bond; where it is
// bound to none, whether any interface is one.
bool UsesBond(const PlanRequest& request, const Machine& machine) {
  const std::string interface = BoundInterface(request, machine);
  if (!interface.empty()) return IsOverBond(machine.interfaces, interface);
  return std::any_of(machine.interfaces.begin(), machine.interfaces.end(),
                     [](const NetInterface& each) {
                       return each.kind == NetInterface::Kind::kBond;
                     });
}

void ChooseConnections(const PlanRequest& request, bool is_over_bond,
                       Plan* plan) {
  const double gbps = plan->link_bytes_per_s / kBytesPerGbit;
  const int rails = request.rails.value;
  PlannedConnections chosen;
  if (request.connections.is_set()) {
    chosen = {request.connections.value, request.connections.by};
  } else if (rails > 0) {
    chosen = {1 + rails, absl::StrCat("one for each of ", 1 + rails, " rails")};
  } else if (plan->network == NetworkKind::kLocal) {
    chosen.why = "nothing leaves the machine";
  } else {
    chosen = ConnectionsOver(plan->network, gbps, is_over_bond);
    if (chosen.why.empty()) {
      chosen.why = gbps > 0
                       ? absl::StrFormat("one fills a link of %g Gb/s", gbps)
                       : std::string("no port tells its rate");
    }
  }
  plan->connections = chosen.connections;
  plan->decisions.push_back({.what = Decision::Kind::kConnections,
                             .choice = absl::StrCat(chosen.connections),
                             .why = std::move(chosen.why)});
}

// MTU and number of connections.
void ChooseSmallNumbers(std::span<const Machine* const> machines,
                        const PlanRequest& request, Plan* plan) {
  int most = 0;
  bool bond = false;
  for (const Machine* machine : machines) {
    const int mtu = LeastMtu(*machine, plan->network);
    bond = bond || UsesBond(request, *machine);
    most = std::max(most, mtu);
    if (mtu > 0 && (plan->mtu == 0 || mtu < plan->mtu)) plan->mtu = mtu;
  }
  if (plan->mtu < most) {
    plan->warnings.push_back(absl::StrCat("MTUs differ, ", plan->mtu, " to ",
                                          most, " bytes; ", plan->mtu,
                                          " is used"));
  }
  ChooseConnections(request, bond, plan);
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

// The slowest machine's rate: by the interfaces that members are bound to, else
// by the cards that the plan has. 0: unknown.
double LeastGbps(std::span<const Machine* const> machines,
                 const PlanRequest& request, const Plan& plan) {
  double least = 0;
  const auto take = [&least](double gbps) {
    if (gbps > 0 && (least == 0 || gbps < least)) least = gbps;
  };
  for (const Machine* machine : machines) {
    const auto bound = std::ranges::find(machine->interfaces,
                                         BoundInterface(request, *machine),
                                         &NetInterface::name);
    if (bound != machine->interfaces.end() && bound->gbps.known()) {
      take(*bound->gbps.value);
    }
  }
  if (least > 0) return least;
  for (const MachinePlan& machine : plan.machines) take(machine.gbps);
  return least;
}

// Everything but the exchange: network, rails, memory.
absl::StatusOr<Plan> PlanMachines(std::span<const Machine* const> machines,
                                  const PlanRequest& request) {
  Plan plan;
  const auto count = static_cast<int>(machines.size());
  plan.workers = request.workers > 0 ? request.workers
                                     : std::max(1, count - request.servers);
  plan.servers = request.servers;
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
                                   bool is_over_bond) {
  if (network == NetworkKind::kTcp && gbps >= kManyStreamsGbps) {
    return {4, absl::StrFormat("one TCP stream does not fill %g Gb/s", gbps)};
  }
  if (network != NetworkKind::kLocal && is_over_bond) {
    return {2, "a bond spreads by connection"};
  }
  return {};
}

bool UsesGdr(const Plan& plan) {
  for (const MachinePlan& machine : plan.machines) {
    for (const GpuPlan& gpu : machine.gpus) {
      if (gpu.memory >= MemoryPath::kGdrReceive) return true;
    }
  }
  return false;
}

absl::StatusOr<Plan> PlanPath(std::span<const Machine> machines,
                              const PlanRequest& request) {
  RETURN_IF_ERROR(CheckSize(request));
  const std::vector<const Machine*> sorted = Sorted(machines);
  if (request.given != nullptr) {
    return ObeyGiven(sorted, request);
  }
  ASSIGN_OR_RETURN(Plan plan, PlanMachines(sorted, request));
  ChooseTierOne(request, &plan);
  plan.link_bytes_per_s = kBytesPerGbit * LeastGbps(sorted, request, plan);
  ChooseSumsOfWorkers(request, &plan);
  ChooseSmallNumbers(sorted, request, &plan);
  SummarisePath(&plan);
  plan.digest = Sha256Hex(PlanFacts(plan));
  return plan;
}

absl::StatusOr<Plan> MakePlan(std::span<const Machine> machines,
                              const Calibration& calibration,
                              const PlanRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  RETURN_IF_ERROR(CheckCalibration(calibration));
  const std::vector<const Machine*> sorted = Sorted(machines);
  ASSIGN_OR_RETURN(Plan plan, PlanMachines(sorted, request));
  const Estimate estimate = MakeEstimate(calibration, request, &plan);
  RETURN_IF_ERROR(ChooseExchange(calibration, request, estimate, &plan));
  ChooseSumsOfMachines(request, estimate.cluster, &plan);
  ChooseSmallNumbers(sorted, request, &plan);
  SummarisePath(&plan);
  SummariseExchange(request, &plan);
  plan.digest = Sha256Hex(PlanFacts(plan));
  return plan;
}

absl::StatusOr<Plan> PlanExchange(Plan path, const Calibration& calibration,
                                  const PlanRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  RETURN_IF_ERROR(CheckCalibration(calibration));
  Plan plan = std::move(path);
  if (request.given != nullptr) {
    RETURN_IF_ERROR(CheckGivenExchange(request));
    plan.pushers = request.given->plan.pushers;
  } else {
    plan.pushers.clear();
    plan.servers = request.servers;
    const Estimate estimate = MakeEstimate(calibration, request, &plan);
    RETURN_IF_ERROR(ChooseExchange(calibration, request, estimate, &plan));
    SummariseExchange(request, &plan);
  }
  plan.digest = Sha256Hex(PlanFacts(plan));
  return plan;
}

}  // namespace telegrad
