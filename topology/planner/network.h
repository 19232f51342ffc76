#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/plan.h"

namespace telegrad {

// What carries a network; in the order of preference.
struct NetworkTraits {
  NetworkKind kind;
  const char* name;
  Fabric fabric;
  const char* transport;
  const char* tls;
};
inline constexpr NetworkTraits kNetworks[] = {
    {NetworkKind::kInfiniBand, "IB", Fabric::kInfiniBand, "ucx", ""},
    {NetworkKind::kRoceV2, "RoCEv2", Fabric::kRoceV2, "ucx", ""},
    {NetworkKind::kEfa, "EFA", Fabric::kEfa, "ofi", "efa"},
    {NetworkKind::kTcp, "TCP", Fabric::kEthernet, "tcp", ""},
    {NetworkKind::kLocal, "local", Fabric::kUnknown, "ucx", ""},
};

const NetworkTraits& TraitsOf(NetworkKind network);
constexpr bool IsRdma(NetworkKind network) {
  return network != NetworkKind::kTcp && network != NetworkKind::kLocal;
}

// The name that messages use: the host, else the file it came from.
std::string LabelOf(const Machine& machine);

// What stands in the way; `why` is empty where nothing does.
struct Obstacle {
  std::string why = {};
  std::vector<Evidence> evidence = {};
};

// Whether a machine can use a network.
Obstacle WhyNot(const Machine& machine, NetworkKind network);
// Whether this port speaks it, and whether it is active.
bool Speaks(const Nic& nic, const Port& port, NetworkKind network);
bool IsUp(const Port& port);

void Append(const std::vector<Evidence>& more, std::vector<Evidence>* all);

// The interface that PlanRequest::bound names for the machine; empty: none.
std::string BoundInterface(const PlanRequest& request, const Machine& machine);

// The ports of a card that the network can use, the fastest first.
std::vector<const Port*> UsablePorts(const Nic& nic, NetworkKind network);
// The first of them; null where there is none.
const Port* UsablePort(const Nic& nic, NetworkKind network);

// Gigabits/s of a port behind its slot; 0: unknown.
double RateOf(const Nic& nic, const Port& port);

// The network that a request names; none where it names none, or a transport,
// also one that ParseNetwork does not know and all builds have.
absl::StatusOr<std::optional<NetworkKind>> NetworkNamed(
    const PlanRequest& request);

// Decides what all machines use, and notes why in `plan`.
absl::Status ChooseNetwork(std::span<const Machine* const> machines,
                           const PlanRequest& request, Plan* plan);

}  // namespace telegrad
