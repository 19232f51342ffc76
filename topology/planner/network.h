#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/plan.h"

namespace telegrad {

// The name that messages use: the host, else the file it came from.
std::string LabelOf(const Machine& machine);

// The fastest port of a card that the network can use; null where there is
// none.
const Port* UsablePort(const Nic& nic, NetworkKind network);

// Gigabits/s of a port behind its slot; 0: unknown.
double RateOf(const Nic& nic, const Port& port);

// Decides what all machines use, and notes why in `plan`.
absl::Status ChooseNetwork(std::span<const Machine* const> machines,
                           const PlanRequest& request, Plan* plan);

}  // namespace telegrad
