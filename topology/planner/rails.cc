#include "topology/planner/rails.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "topology/path.h"
#include "topology/planner/network.h"

namespace telegrad {
namespace {

// A port that may carry gradients.
struct Candidate {
  size_t nic = 0;
  const Port* port = nullptr;
  double gbps = 0;
  Bdf bdf = {};
  int users = 0;
};

bool Has(const Nic& nic, const Port& port, const std::string& interface) {
  return port.net_interface == interface ||
         (nic.ports.size() == 1 &&
          std::ranges::find(nic.net_interfaces, interface) !=
              nic.net_interfaces.end()) ||
         std::ranges::any_of(port.gids, [&](const Gid& gid) {
           return gid.net_interface == interface;
         });
}

// An interface and those below it: of a VLAN, a bond, a bridge.
std::set<std::string> WithLower(const Machine& machine,
                                const std::string& interface) {
  std::set<std::string> names;
  std::vector<std::string> open = {interface};
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    if (!names.insert(name).second) continue;
    const auto found =
        std::ranges::find(machine.interfaces, name, &NetInterface::name);
    if (found == machine.interfaces.end()) continue;
    open.insert(open.end(), found->lower.begin(), found->lower.end());
  }
  return names;
}

// Where a job's member is bound to an interface, its cards are those of that
// interface, if there are any; others are of use where they need no address of
// it. TELEGRAD_NICS, which has left its cards alone, says more than that.
void KeepNear(const Machine& machine, NetworkKind network,
              const std::string& interface, std::vector<Candidate>* found) {
  const auto users = machine.environment.find("TELEGRAD_NICS");
  const bool has_users =
      users != machine.environment.end() && !users->second.empty();
  if (interface.empty() || has_users) return;
  const std::set<std::string> below = WithLower(machine, interface);
  const auto is_near = [&](const Candidate& each) {
    return std::ranges::any_of(below, [&](const std::string& name) {
      return Has(machine.nics[each.nic], *each.port, name);
    });
  };
  const bool needs_address =
      network == NetworkKind::kRoceV2 || network == NetworkKind::kTcp;
  if (needs_address || std::ranges::any_of(*found, is_near)) {
    std::erase_if(*found, [&](const auto& each) { return !is_near(each); });
  }
}

// Ports of the network that are not much slower than the best of them.
std::vector<Candidate> FindCandidates(const Machine& machine,
                                      NetworkKind network,
                                      const std::string& interface) {
  std::vector<Candidate> found;
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const Nic& nic = machine.nics[i];
    for (const Port* port : UsablePorts(nic, network)) {
      found.push_back(
          {i, port, RateOf(nic, *port), nic.bdf.value_or(Bdf{}), 0});
    }
  }
  KeepNear(machine, network, interface, &found);
  std::set<size_t> nics;  // cards whose best port is kept
  double best = 0;
  std::erase_if(found, [&](const Candidate& each) {
    best = std::max(best, each.gbps);
    return !nics.insert(each.nic).second;
  });
  std::erase_if(found,
                [&](const Candidate& each) { return each.gbps < best / 2; });
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    return std::tie(a.bdf, machine.nics[a.nic].name) <
           std::tie(b.bdf, machine.nics[b.nic].name);
  });
  return found;
}

PathClass PathOf(const Machine& machine, size_t gpu, size_t nic) {
  if (gpu >= machine.gpu_nic.size() || nic >= machine.gpu_nic[gpu].size()) {
    return PathClass::kUnknown;
  }
  return machine.gpu_nic[gpu][nic].path;
}

// The candidates nearest to a GPU, by index.
std::vector<size_t> Nearest(const Machine& machine, size_t gpu,
                            const std::vector<Candidate>& candidates) {
  const auto distance = [&](const Candidate& each) {
    return Distance(PathOf(machine, gpu, each.nic));
  };
  int best = Distance(PathClass::kUnknown);
  for (const Candidate& each : candidates) {
    best = std::min(best, distance(each));
  }
  std::vector<size_t> nearest;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (distance(candidates[i]) == best) nearest.push_back(i);
  }
  return nearest;
}

Rail MakeRail(const Machine& machine, const Candidate& candidate,
              PathClass path) {
  return {.nic = machine.nics[candidate.nic].name,
          .port = candidate.port->number,
          .gid = candidate.port->chosen_gid.value_or(-1),
          .path = path,
          .gbps = candidate.gbps};
}

// Takes `count` of the nearest candidates: fast, unused and low ones first.
std::vector<size_t> Take(std::vector<size_t> nearest, size_t count,
                         std::vector<Candidate>& candidates) {
  std::stable_sort(nearest.begin(), nearest.end(), [&](size_t a, size_t b) {
    return std::make_tuple(-candidates[a].gbps, candidates[a].users) <
           std::make_tuple(-candidates[b].gbps, candidates[b].users);
  });
  nearest.resize(std::min(count, nearest.size()));
  std::sort(nearest.begin(), nearest.end());
  for (const size_t each : nearest) ++candidates[each].users;
  return nearest;
}

bool HasNvlink(const Machine& machine, size_t gpu) {
  return std::any_of(machine.links.begin(), machine.links.end(),
                     [&](const GpuLink& link) {
                       return link.a == static_cast<int>(gpu) ||
                              link.b == static_cast<int>(gpu);
                     });
}

// Whether a transport library takes GPU memory.
Tri LibraryTakesGpu(const Capabilities& has, NetworkKind network) {
  return network == NetworkKind::kEfa ? has.ofi_hmem : has.ucx_cuda;
}

void ChooseMemory(const Machine& machine, size_t gpu, NetworkKind network,
                  GdrWish gdr, GpuPlan* plan) {
  const Capabilities& has = machine.capabilities;
  plan->memory = MemoryPath::kStaging;
  if (network == NetworkKind::kTcp || network == NetworkKind::kLocal) {
    plan->why = absl::StrCat("no GPUDirect RDMA over ", Name(network));
    return;
  }
  if (gdr == GdrWish::kOff) {
    plan->why = "GPUDirect RDMA is switched off";
    return;
  }
  if (has.gdr != Tri::kYes) {
    plan->why = absl::StrCat("GPUDirect RDMA: ", Name(has.gdr));
    return;
  }
  if (LibraryTakesGpu(has, network) == Tri::kNo) {
    plan->why = "the transport's library takes no GPU memory";
    return;
  }
  if (plan->rails.empty()) {
    plan->why = absl::StrCat("no ", Name(network), " card is left for it");
    return;
  }
  const PathClass path = plan->rails.front().path;
  if (path > PathClass::kPxb && gdr != GdrWish::kOn) {
    plan->why = absl::StrCat("the path to ", plan->rails.front().nic, " is ",
                             Name(path), ", farther than PXB");
    return;
  }
  const int capability = machine.gpus[gpu].compute_capability.value_or(80);
  const bool slow_reads = capability < 80 && !HasNvlink(machine, gpu);
  plan->memory = slow_reads && gdr != GdrWish::kOn ? MemoryPath::kGdrReceive
                                                   : MemoryPath::kGdr;
  plan->why = absl::StrCat("GPUDirect RDMA: yes, path ", Name(path));
}

// How many rails a GPU gets: where cards outnumber the GPUs that share them,
// each GPU gets its part of the cards.
std::vector<size_t> RailCounts(const std::vector<std::vector<size_t>>& near) {
  std::vector<size_t> counts;
  for (const std::vector<size_t>& mine : near) {
    const auto sharers =
        static_cast<size_t>(std::count(near.begin(), near.end(), mine));
    counts.push_back(std::max<size_t>(1, mine.size() / sharers));
  }
  return counts;
}

// Once all users of a port are known: shares by rate.
void SetShares(GpuPlan* gpu) {
  double sum = 0;
  for (const Rail& rail : gpu->rails) sum += rail.gbps;
  for (Rail& rail : gpu->rails) {
    rail.gpu_share = sum > 0 ? rail.gbps / sum
                             : 1.0 / static_cast<double>(gpu->rails.size());
  }
}

MachinePlan WithoutGpus(const Machine& machine,
                        const std::vector<Candidate>& candidates,
                        const std::string& why) {
  GpuPlan cpu{.memory = MemoryPath::kHost, .why = why};
  for (const Candidate& each : candidates) {
    cpu.rails.push_back(MakeRail(machine, each, PathClass::kUnknown));
  }
  SetShares(&cpu);
  return {.gpus = {std::move(cpu)}};
}

MachinePlan WithGpus(const Machine& machine, NetworkKind network, GdrWish gdr,
                     std::vector<Candidate>& candidates) {
  MachinePlan plan;
  std::vector<std::vector<size_t>> near;
  for (size_t g = 0; g < machine.gpus.size(); ++g) {
    near.push_back(Nearest(machine, g, candidates));
  }
  const std::vector<size_t> counts = RailCounts(near);
  std::vector<std::vector<size_t>> taken;
  for (size_t g = 0; g < machine.gpus.size(); ++g) {
    taken.push_back(Take(near[g], counts[g], candidates));
  }
  for (size_t g = 0; g < machine.gpus.size(); ++g) {
    GpuPlan gpu{.gpu = machine.gpus[g].name};
    for (const size_t each : taken[g]) {
      gpu.rails.push_back(MakeRail(machine, candidates[each],
                                   PathOf(machine, g, candidates[each].nic)));
      gpu.rails.back().users = candidates[each].users;
    }
    SetShares(&gpu);
    ChooseMemory(machine, g, network, gdr, &gpu);
    plan.gpus.push_back(std::move(gpu));
  }
  return plan;
}

}  // namespace

const char* Name(MemoryPath path) {
  switch (path) {
    case MemoryPath::kHost:
      return "host";
    case MemoryPath::kStaging:
      return "staging";
    case MemoryPath::kGdrReceive:
      return "gdr-receive";
    case MemoryPath::kGdr:
      return "gdr";
  }
  return "unknown";
}

const char* Name(GdrWish wish) {
  switch (wish) {
    case GdrWish::kAuto:
      return "auto";
    case GdrWish::kOff:
      return "off";
    case GdrWish::kOn:
      return "on";
  }
  return "unknown";
}

absl::StatusOr<GdrWish> ParseGdr(absl::string_view text) {
  for (const GdrWish wish : {GdrWish::kAuto, GdrWish::kOn, GdrWish::kOff}) {
    if (text == Name(wish)) return wish;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("gdr \"", text, "\" is none of auto, on, off"));
}

int LeastMtu(const Machine& machine, NetworkKind network) {
  int least = 0;
  for (const Nic& nic : machine.nics) {
    const Port* port = UsablePort(nic, network);
    const int mtu = port == nullptr ? 0 : port->active_mtu.value_or(0);
    if (mtu > 0 && (least == 0 || mtu < least)) least = mtu;
  }
  return least;
}

absl::StatusOr<MachinePlan> ChooseRails(const Machine& machine,
                                        const Plan& plan,
                                        const PlanRequest& request) {
  std::vector<Candidate> candidates =
      FindCandidates(machine, plan.network, BoundInterface(request, machine));
  const bool is_on_host = machine.gpus.empty() || request.host_memory.is_set();
  MachinePlan result =
      is_on_host ? WithoutGpus(
                       machine, candidates,
                       machine.gpus.empty() ? "no GPU" : request.host_memory.by)
                 : WithGpus(machine, plan.network, request.gdr, candidates);
  result.host = LabelOf(machine);
  for (const Candidate& each : candidates) {
    if (is_on_host || each.users > 0) result.gbps += each.gbps;
  }
  for (const GpuPlan& gpu : result.gpus) {
    if (request.gdr == GdrWish::kOn && !gpu.gpu.empty() &&
        gpu.memory == MemoryPath::kStaging) {
      return absl::FailedPreconditionError(
          absl::StrCat("GPUDirect RDMA was asked for, but ", result.host, " ",
                       gpu.gpu, " cannot use it: ", gpu.why));
    }
  }
  return result;
}

}  // namespace telegrad
