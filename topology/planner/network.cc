#include "topology/planner/network.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/path.h"

namespace telegrad {
namespace {

constexpr uint64_t kMinMemlock = uint64_t{64} << 20;
constexpr NetworkKind kRdma[] = {NetworkKind::kInfiniBand, NetworkKind::kRoceV2,
                                 NetworkKind::kEfa};

Fabric FabricOf(NetworkKind network) {
  switch (network) {
    case NetworkKind::kInfiniBand:
      return Fabric::kInfiniBand;
    case NetworkKind::kRoceV2:
      return Fabric::kRoceV2;
    case NetworkKind::kEfa:
      return Fabric::kEfa;
    default:
      return Fabric::kEthernet;
  }
}

bool IsUp(const Port& port) { return port.state.value_or(4) == 4; }

// TCP runs over cards of Ethernet, RDMA or not, and over those whose fabric
// the source does not tell as long as the kernel has an interface for them.
bool Speaks(const Nic& nic, const Port& port, NetworkKind network) {
  if (network != NetworkKind::kTcp) {
    return nic.is_rdma && port.fabric == FabricOf(network);
  }
  const bool has_interface = !nic.is_rdma || !nic.net_interfaces.empty() ||
                             !port.net_interface.empty();
  return has_interface && port.link_layer != LinkLayer::kInfiniBand &&
         port.fabric != Fabric::kInfiniBand;
}

// A RoCE port needs an address that routes, where the source shows a table.
bool HasGid(const Port& port, NetworkKind network) {
  return network != NetworkKind::kRoceV2 || port.chosen_gid.known() ||
         !ShowsGids(port);
}

std::string MissingSoftware(const Machine& machine, NetworkKind network) {
  const Capabilities& has = machine.capabilities;
  if (network == NetworkKind::kEfa) {
    return has.ofi_efa == Tri::kNo ? "libfabric's efa provider does not open"
                                   : "";
  }
  if (has.ucx_rdma == Tri::kNo) return "UCX has no RDMA transport";
  if (has.rdma_device_nodes == Tri::kNo) {
    return "its RDMA devices cannot be opened (/dev/infiniband)";
  }
  const uint64_t memlock =
      has.memlock_bytes.value_or(std::numeric_limits<uint64_t>::max());
  if (memlock < kMinMemlock) {
    return absl::StrCat("the limit of locked memory is ", memlock >> 10,
                        " KiB (ulimit -l); RDMA needs 64 MiB");
  }
  return "";
}

// Empty where the machine can use the network.
std::string WhyNot(const Machine& machine, NetworkKind network) {
  bool speaks = false;
  bool up = false;
  bool routable = false;
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if (!Speaks(nic, port, network)) continue;
      speaks = true;
      up = up || IsUp(port);
      routable = routable || (IsUp(port) && HasGid(port, network));
    }
  }
  const char* name = Name(network);
  if (!speaks) return absl::StrCat("it has no ", name, " port");
  if (!up) return absl::StrCat("no ", name, " port is active");
  if (!routable) return "no active port has a routable RoCE v2 GID";
  return network == NetworkKind::kTcp ? "" : MissingSoftware(machine, network);
}

absl::Status TakeOverride(std::span<const Machine* const> machines,
                          NetworkKind network, Plan* plan) {
  for (const Machine* machine : machines) {
    const std::string why = WhyNot(*machine, network);
    if (!why.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(Name(network), " was asked for, but ", LabelOf(*machine),
                       " cannot use it: ", why));
    }
  }
  plan->network = network;
  plan->reasons.push_back(
      absl::StrCat("network ", Name(network), ": asked for, and each of ",
                   machines.size(), " machine(s) can use it"));
  return absl::OkStatus();
}

// The machines that cannot use a network, with their reasons; a few are named.
std::string NameLacking(std::span<const Machine* const> machines,
                        NetworkKind network, size_t* count) {
  std::vector<std::string> named;
  *count = 0;
  for (const Machine* machine : machines) {
    const std::string why = WhyNot(*machine, network);
    if (why.empty()) continue;
    if (++*count <= 3) {
      named.push_back(absl::StrCat(LabelOf(*machine), " (", why, ")"));
    }
  }
  std::string text = absl::StrJoin(named, ", ");
  if (*count > named.size()) {
    absl::StrAppend(&text, " and ", *count - named.size(), " more");
  }
  return text;
}

// The first RDMA network that all machines can use; warns of those that only
// some can use, which helps nobody.
std::optional<NetworkKind> CommonRdma(std::span<const Machine* const> machines,
                                      Plan* plan) {
  for (const NetworkKind each : kRdma) {
    size_t lacking = 0;
    const std::string who = NameLacking(machines, each, &lacking);
    if (lacking == 0) return each;
    const auto speaks = [&](const Machine* machine) {
      return std::any_of(
          machine->nics.begin(), machine->nics.end(),
          [&](const Nic& nic) { return UsablePort(nic, each) != nullptr; });
    };
    if (!std::any_of(machines.begin(), machines.end(), speaks)) continue;
    plan->warnings.push_back(absl::StrCat(
        Name(each), " is on ", machines.size() - lacking, " of ",
        machines.size(), " machines only, so none uses it: not on ", who));
  }
  return std::nullopt;
}

// TCP can be had over cards that speak something else as well.
void ExplainTcp(std::span<const Machine* const> machines, Plan* plan) {
  for (const Machine* machine : machines) {
    const std::string why = WhyNot(*machine, NetworkKind::kTcp);
    if (!why.empty()) {
      plan->warnings.push_back(
          absl::StrCat("TCP on ", LabelOf(*machine), ": ", why));
    }
  }
  plan->reasons.push_back(
      absl::StrCat("network TCP: no RDMA network is usable on each of ",
                   machines.size(), " machine(s)"));
}

// What runs already.
void TakeFixed(std::span<const Machine* const> machines, NetworkKind network,
               const std::string& why, Plan* plan) {
  plan->network = network;
  plan->reasons.push_back(absl::StrCat("network ", Name(network), ": ", why));
  if (machines.empty()) return;
  const std::optional<NetworkKind> rdma = CommonRdma(machines, plan);
  if (!rdma.has_value() || *rdma == network) return;
  absl::StrAppend(&plan->reasons.back(), "; each of ", machines.size(),
                  " machine(s) has an active port of ", Name(*rdma));
}

}  // namespace

const char* Name(NetworkKind network) {
  switch (network) {
    case NetworkKind::kLocal:
      return "local";
    case NetworkKind::kTcp:
      return "TCP";
    case NetworkKind::kInfiniBand:
      return "IB";
    case NetworkKind::kRoceV2:
      return "RoCEv2";
    case NetworkKind::kEfa:
      return "EFA";
  }
  return "unknown";
}

absl::StatusOr<std::optional<NetworkKind>> ParseNetwork(
    absl::string_view text) {
  for (const NetworkKind each : {NetworkKind::kTcp, NetworkKind::kInfiniBand,
                                 NetworkKind::kRoceV2, NetworkKind::kEfa}) {
    if (absl::EqualsIgnoreCase(text, Name(each))) return each;
  }
  for (const char* library : {"auto", "inproc", "ofi", "ucx"}) {
    if (absl::EqualsIgnoreCase(text, library)) return std::nullopt;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no network '", text,
                   "'; there are TCP, IB, RoCEv2 and EFA, and auto, inproc, "
                   "ofi and ucx, which leave it to the machines"));
}

std::string LabelOf(const Machine& machine) {
  if (!machine.host.empty()) return machine.host;
  return machine.source.empty() ? "a machine" : machine.source;
}

double RateOf(const Nic& nic, const Port& port) {
  const double rate = port.gbps.value_or(0);
  const double slot = nic.pcie_gbps.value_or(0);
  return rate > 0 && slot > 0 ? std::min(rate, slot) : rate;
}

const Port* UsablePort(const Nic& nic, NetworkKind network) {
  const Port* best = nullptr;
  for (const Port& port : nic.ports) {
    if (!Speaks(nic, port, network) || !IsUp(port) || !HasGid(port, network)) {
      continue;
    }
    if (best == nullptr || RateOf(nic, port) > RateOf(nic, *best)) best = &port;
  }
  return best;
}

absl::Status ChooseNetwork(std::span<const Machine* const> machines,
                           const PlanRequest& request, Plan* plan) {
  ASSIGN_OR_RETURN(
      const std::optional<NetworkKind> wish,
      ParseNetwork(request.network.empty() ? "auto" : request.network));
  if (plan->workers + plan->servers <= 1) {
    plan->network = NetworkKind::kLocal;
    plan->reasons.push_back("network local: one machine");
    return absl::OkStatus();
  }
  if (wish.has_value() && !request.fixed.network_why.empty()) {
    TakeFixed(machines, *wish, request.fixed.network_why, plan);
    return absl::OkStatus();
  }
  if (wish.has_value()) return TakeOverride(machines, *wish, plan);
  if (machines.empty()) {
    plan->network = NetworkKind::kTcp;
    plan->reasons.push_back("network TCP: nothing is known of the machines");
    return absl::OkStatus();
  }
  const std::optional<NetworkKind> rdma = CommonRdma(machines, plan);
  if (!rdma.has_value()) {
    plan->network = NetworkKind::kTcp;
    ExplainTcp(machines, plan);
    return absl::OkStatus();
  }
  plan->network = *rdma;
  plan->reasons.push_back(absl::StrCat("network ", Name(*rdma), ": each of ",
                                       machines.size(),
                                       " machine(s) has an active port"));
  if (*rdma == NetworkKind::kRoceV2) {
    plan->warnings.push_back(
        "RoCEv2 needs flow control (PFC or ECN) on every switch; that is not "
        "known from the machines");
  }
  return absl::OkStatus();
}

}  // namespace telegrad
