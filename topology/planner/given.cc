#include "topology/planner/given.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/planner/network.h"
#include "topology/planner/rails.h"
#include "topology/planner/sums.h"
#include "topology/planner/tier_one.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

class GivenCheck {
 public:
  GivenCheck(std::span<const Machine* const> machines,
             const PlanRequest& request)
      : machines_(machines), request_(request), plan_(request.given->plan) {}

  absl::Status CheckPath() const {
    RETURN_IF_ERROR(CheckFlags());
    RETURN_IF_ERROR(CheckHosts());
    for (const Machine* each : machines_) RETURN_IF_ERROR(CheckMachine(*each));
    RETURN_IF_ERROR(CheckMemory());
    return plan_.pushers.empty() ? absl::OkStatus() : CheckPushers();
  }

  absl::Status CheckExchange() const {
    const Constraint<Aggregation>& aggregation = request_.aggregation;
    if (aggregation.is_set() && aggregation.value != plan_.aggregation) {
      return Differs("aggregation", Name(plan_.aggregation), aggregation.by,
                     Name(aggregation.value));
    }
    if (request_.servers != plan_.servers) {
      return Refuse("is for ", plan_.servers,
                    " machines with servers only, this job has ",
                    request_.servers);
    }
    const std::vector<ProfileTensor>& tensors = request_.profile.tensors;
    if (tensors.size() != plan_.tensors.size()) {
      return Refuse("has ", plan_.tensors.size(), " tensors, ",
                    request_.profile.name, " ", tensors.size());
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      RETURN_IF_ERROR(CheckTensor(i, tensors[i]));
    }
    return absl::OkStatus();
  }

 private:
  template <typename... Text>
  absl::Status Refuse(const Text&... why) const {
    return absl::FailedPreconditionError(
        absl::StrCat(request_.given->by, " ", why...));
  }
  absl::Status Differs(absl::string_view what, absl::string_view given,
                       absl::string_view by, absl::string_view other) const {
    return Refuse("has ", what, " ", given, ", but ", by, " means ", other,
                  "; leave one of them out");
  }

  absl::Status CheckFlags() const {
    const Constraint<std::string>& network = request_.network;
    if (network.is_set() && !absl::EqualsIgnoreCase(network.value, "auto")) {
      ASSIGN_OR_RETURN(const auto kind, NetworkNamed(request_));
      // What stays on one machine has no network, whatever carries it.
      if (kind.has_value() && *kind != plan_.network &&
          plan_.network != NetworkKind::kLocal) {
        return Differs("network", Name(plan_.network), network.by, Name(*kind));
      }
      const std::string name = kind.has_value()
                                   ? TransportOf(*kind)
                                   : absl::AsciiStrToLower(network.value);
      if (name != plan_.transport) {
        return Differs("transport", plan_.transport, network.by, name);
      }
    }
    if (request_.tls.is_set() && request_.tls.value != plan_.tls) {
      return Differs("tls", absl::StrCat("'", plan_.tls, "'"), request_.tls.by,
                     request_.tls.value);
    }
    const std::string sockets = TransportOf(NetworkKind::kTcp);
    if (request_.rails.is_set() && plan_.transport != sockets) {
      return Differs("transport", plan_.transport, request_.rails.by, sockets);
    }
    if (request_.connections.is_set() &&
        request_.connections.value != plan_.connections) {
      return Differs("connections", absl::StrCat(plan_.connections),
                     request_.connections.by,
                     absl::StrCat(request_.connections.value));
    }
    const std::vector<std::string>& all = request_.transports;
    if (all.empty() || std::ranges::find(all, plan_.transport) != all.end()) {
      return absl::OkStatus();
    }
    return Refuse("has transport ", plan_.transport,
                  ", which is not in every build");
  }

  // The plan must be for the job's machines, each under its name.
  absl::Status CheckHosts() const {
    if (request_.workers != 0 && request_.workers != plan_.workers) {
      return Refuse("is for ", plan_.workers,
                    " machines with workers, this job has ", request_.workers);
    }
    if (plan_.machines.empty()) return absl::OkStatus();
    std::vector<std::string> planned;
    for (const MachinePlan& each : plan_.machines) planned.push_back(each.host);
    for (const auto& [host, interface] : request_.bound) {
      if (std::ranges::find(planned, host) != planned.end()) continue;
      return Refuse("has no machine ", host, "; it is for ",
                    absl::StrJoin(planned, ", "));
    }
    for (const std::string& host : planned) {
      if (request_.bound.empty() || request_.bound.contains(host)) continue;
      return Refuse("is for the machine ", host,
                    ", which has no member in this job");
    }
    return absl::OkStatus();
  }

  absl::Status CheckMachine(const Machine& machine) const {
    const std::string label = LabelOf(machine);
    const std::string interface = BoundInterface(request_, machine);
    if (IsRdma(plan_.network) && interface == "lo") {
      return Refuse("has network ", Name(plan_.network), ", but ", label,
                    " has a loopback address, which no card reaches; --bind "
                    "gives it another");
    }
    const Obstacle obstacle =
        IsRdma(plan_.network) ? WhyNot(machine, plan_.network) : Obstacle();
    if (!obstacle.why.empty()) {
      return Refuse("has network ", Name(plan_.network), ", but ", label,
                    " cannot use it: ", obstacle.why);
    }
    const auto planned =
        std::ranges::find(plan_.machines, label, &MachinePlan::host);
    bool has_rails = false;
    if (planned != plan_.machines.end()) {
      for (const GpuPlan& gpu : planned->gpus) {
        for (const Rail& rail : gpu.rails) {
          has_rails = true;
          RETURN_IF_ERROR(CheckRail(machine, rail));
        }
      }
    }
    if (IsRdma(plan_.network) && !has_rails) {
      return Refuse("has network ", Name(plan_.network), " and no card of ",
                    label, "; plan with --from and the file of that machine");
    }
    return plan_.network == NetworkKind::kTcp && has_rails
               ? CheckInterfaces(machine, *planned)
               : absl::OkStatus();
  }

  absl::Status CheckRail(const Machine& machine, const Rail& rail) const {
    const std::string label = LabelOf(machine);
    const auto nic = std::ranges::find(machine.nics, rail.nic, &Nic::name);
    if (nic == machine.nics.end()) {
      std::vector<std::string> names;
      for (const Nic& each : machine.nics) names.push_back(each.name);
      return Refuse("has the card ", rail.nic, " of ", label, ", which has ",
                    names.empty() ? "none" : absl::StrJoin(names, ", "));
    }
    const auto port = std::ranges::find(nic->ports, rail.port, &Port::number);
    if (port == nic->ports.end() || !Speaks(*nic, *port, plan_.network)) {
      return Refuse("has port ", rail.port, " of ", rail.nic, " on ", label,
                    ", which is no ", Name(plan_.network), " port there");
    }
    if (!IsUp(*port)) {
      return Refuse("has port ", rail.port, " of ", rail.nic, " on ", label,
                    ", which is not active");
    }
    if (plan_.network != NetworkKind::kRoceV2 || HasRow(*port, rail.gid)) {
      return absl::OkStatus();
    }
    return Refuse("has row ", rail.gid, " of the GID table of ", rail.nic, ":",
                  rail.port, " on ", label,
                  ", which has no RoCE v2 address there");
  }

  // A source without rows tells only the chosen one.
  static bool HasRow(const Port& port, int row) {
    if (port.gids.empty()) {
      return !port.chosen_gid.known() || *port.chosen_gid.value == row;
    }
    return std::ranges::any_of(port.gids, [row](const Gid& gid) {
      return gid.index == row && gid.type == GidType::kRoceV2;
    });
  }

  // TCP goes by addresses: the cards are those of the interface that has it.
  absl::Status CheckInterfaces(const Machine& machine,
                               const MachinePlan& planned) const {
    if (BoundInterface(request_, machine).empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const MachinePlan own,
                     ChooseRails(machine, plan_, request_));
    const std::set<std::string> here = Cards(own);
    const std::set<std::string> there = Cards(planned);
    if (here.empty() || here == there) return absl::OkStatus();
    return Refuse("has the cards ", absl::StrJoin(there, ", "), " of ",
                  planned.host, ", but TCP goes where its address is (--bind, ",
                  BoundInterface(request_, machine),
                  "): ", absl::StrJoin(here, ", "));
  }

  static std::set<std::string> Cards(const MachinePlan& machine) {
    std::set<std::string> names;
    for (const GpuPlan& gpu : machine.gpus) {
      for (const Rail& rail : gpu.rails) names.insert(rail.nic);
    }
    return names;
  }

  absl::Status CheckMemory() const {
    const Constraint<bool>& on_host = request_.host_memory;
    for (const MachinePlan& machine : plan_.machines) {
      for (const GpuPlan& gpu : machine.gpus) {
        if (!on_host.is_set() || gpu.memory == MemoryPath::kHost) continue;
        return Refuse("has memory ", Name(gpu.memory), " for ", gpu.gpu, " of ",
                      machine.host, ", but ", on_host.by,
                      "; plan with --memory host");
      }
    }
    if (!plan_.is_hierarchical) return absl::OkStatus();
    return Refuse(
        "sums over the GPUs of a machine first, but ",
        on_host.is_set() ? on_host.by : "each worker of a run has one",
        "; plan with --memory host");
  }

  // The pushers of a plan from a file must be those of this job's hosts.
  absl::Status CheckPushers() const {
    const Constraint<bool>& told = request_.tier_one;
    if (told.is_set() && !told.value) {
      return Differs("tier1", "on", told.by, "off");
    }
    PlanRequest on = request_;
    on.tier_one = {true, request_.given->by};
    Plan chosen;
    ChooseTierOne(on, &chosen);
    if (on.worker_hosts.empty() || chosen.pushers == plan_.pushers) {
      return absl::OkStatus();
    }
    return Refuse("has ", plan_.pushers.size(),
                  " workers that push for each other, which are not those of "
                  "this job's hosts; plan anew");
  }

  absl::Status CheckTensor(size_t i, const ProfileTensor& tensor) const {
    const TensorPlan& planned = plan_.tensors[i];
    if (planned.name != tensor.name || planned.elems != tensor.num_elems) {
      return Refuse("has the tensor ", planned.name, " of ", planned.elems,
                    " elements, where ", request_.profile.name, " has ",
                    tensor.name, " of ", tensor.num_elems);
    }
    const Constraint<int64_t>& chunk = request_.chunk_bytes;
    if (chunk.is_set() && chunk.value != planned.chunk_bytes) {
      return Differs("chunk",
                     absl::StrCat(planned.chunk_bytes / 4, " elements"),
                     chunk.by, absl::StrCat(chunk.value / 4, " elements"));
    }
    const std::string codec =
        request_.tensor_codecs.empty() ? "" : request_.tensor_codecs[i];
    if (codec.empty() || codec == planned.codec) return absl::OkStatus();
    return Refuse("has codec ", planned.codec, " for ", tensor.name,
                  ", but this run has ", codec);
  }

  std::span<const Machine* const> machines_;
  const PlanRequest& request_;
  const Plan& plan_;
};

}  // namespace

absl::Status CheckGivenExchange(const PlanRequest& request) {
  return GivenCheck({}, request).CheckExchange();
}

absl::StatusOr<Plan> ObeyGiven(std::span<const Machine* const> machines,
                               const PlanRequest& request) {
  RETURN_IF_ERROR(GivenCheck(machines, request).CheckPath());
  Plan plan = request.given->plan;
  plan.hosts = HostsOf(request);
  for (Decision& each : plan.decisions) {
    each.why =
        absl::StrCat(request.given->by, each.why.empty() ? "" : "; ", each.why);
  }
  if (plan.pushers.empty()) {
    // A file of a run may say what was decided for that run's hosts.
    std::erase_if(plan.decisions, [](const Decision& each) {
      return each.what == Decision::Kind::kTierOne;
    });
    ChooseTierOne(request, &plan);
    plan.digest = Sha256Hex(PlanFacts(plan));
  }
  return plan;
}

}  // namespace telegrad
