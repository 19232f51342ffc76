#include <algorithm>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "topology/planner/network.h"

namespace telegrad {
namespace {

constexpr uint64_t kMinMemlock = uint64_t{64} << 20;

// A RoCE port needs an address that routes, where the source shows a table.
bool HasGid(const Port& port, NetworkKind network) {
  return network != NetworkKind::kRoceV2 || port.chosen_gid.known() ||
         !ShowsGids(port);
}

Obstacle MissingSoftware(const Machine& machine, NetworkKind network) {
  const Capabilities& has = machine.capabilities;
  const auto lacks = [&has](std::string why, const char* what) {
    const auto found = has.why.find(what);
    return Obstacle{std::move(why), found == has.why.end()
                                        ? std::vector<Evidence>()
                                        : found->second};
  };
  if (network == NetworkKind::kEfa) {
    return has.ofi_efa == Tri::kNo
               ? lacks("libfabric's efa provider does not open", "ofi_efa")
               : Obstacle();
  }
  if (has.ucx_rdma == Tri::kNo) {
    return lacks("UCX has no RDMA transport", "ucx_rdma");
  }
  if (has.rdma_device_nodes == Tri::kNo) {
    return lacks("its RDMA devices cannot be opened (/dev/infiniband)",
                 "rdma_device_nodes");
  }
  const uint64_t memlock =
      has.memlock_bytes.value_or(std::numeric_limits<uint64_t>::max());
  if (memlock >= kMinMemlock) return {};
  return {absl::StrCat("the limit of locked memory is ", memlock >> 10,
                       " KiB; RDMA needs 64 MiB (ulimit -l unlimited, "
                       "LimitMEMLOCK=infinity of a service, --ulimit "
                       "memlock=-1 of a container)"),
          has.memlock_bytes.why};
}

}  // namespace

const NetworkTraits& TraitsOf(NetworkKind network) {
  return *std::ranges::find(kNetworks, network, &NetworkTraits::kind);
}

bool IsUp(const Port& port) { return port.state.value_or(4) == 4; }

// TCP runs over cards of Ethernet, RDMA or not, and over those whose fabric
// the source does not tell as long as the kernel has an interface for them.
bool Speaks(const Nic& nic, const Port& port, NetworkKind network) {
  if (network != NetworkKind::kTcp) {
    return nic.is_rdma && nic.has_device_node != Tri::kNo &&
           port.fabric == TraitsOf(network).fabric;
  }
  const bool has_interface = !nic.is_rdma || !nic.net_interfaces.empty() ||
                             !port.net_interface.empty();
  return has_interface && port.link_layer != LinkLayer::kInfiniBand &&
         port.fabric != Fabric::kInfiniBand;
}

void Append(const std::vector<Evidence>& more, std::vector<Evidence>* all) {
  all->insert(all->end(), more.begin(), more.end());
}

Obstacle WhyNot(const Machine& machine, NetworkKind network) {
  bool speaks = false;
  bool up = false;
  Obstacle found;
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if (!Speaks(nic, port, network)) continue;
      speaks = true;
      Append(port.state.why, &found.evidence);
      if (!IsUp(port)) continue;
      up = true;
      if (HasGid(port, network)) {
        return network == NetworkKind::kTcp ? Obstacle()
                                            : MissingSoftware(machine, network);
      }
      Append(port.gid_rows.why, &found.evidence);
    }
  }
  const char* name = Name(network);
  found.why = !speaks ? absl::StrCat("it has no ", name, " port")
              : !up   ? absl::StrCat("no ", name, " port is active")
                      : "no active port has a routable RoCE v2 GID";
  return found;
}

std::string LabelOf(const Machine& machine) {
  if (!machine.host.empty()) return machine.host;
  return machine.source.empty() ? "a machine" : machine.source;
}

std::string BoundInterface(const PlanRequest& request, const Machine& machine) {
  const auto found = request.bound.find(LabelOf(machine));
  return found == request.bound.end() ? "" : found->second;
}

double RateOf(const Nic& nic, const Port& port) {
  const double rate = port.gbps.value_or(0);
  const double slot = nic.pcie_gbps.value_or(0);
  return rate > 0 && slot > 0 ? std::min(rate, slot) : rate;
}

std::vector<const Port*> UsablePorts(const Nic& nic, NetworkKind network) {
  std::vector<const Port*> ports;
  for (const Port& port : nic.ports) {
    if (Speaks(nic, port, network) && IsUp(port) && HasGid(port, network)) {
      ports.push_back(&port);
    }
  }
  std::ranges::stable_sort(ports, std::greater<>(), [&nic](const Port* port) {
    return RateOf(nic, *port);
  });
  return ports;
}

const Port* UsablePort(const Nic& nic, NetworkKind network) {
  const std::vector<const Port*> ports = UsablePorts(nic, network);
  return ports.empty() ? nullptr : ports.front();
}

}  // namespace telegrad
