#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/plan.h"

namespace telegrad {

// What a plan says of one machine; plain data.
struct HostSettings {
  // RDMA ports that may be opened ("mlx5_0:1"), and of RoCE ones the row of the
  // GID table; none where the plan's network needs none.
  std::vector<std::string> rdma_ports = {};
  std::map<std::string, int> gid_rows = {};
  // Memory that all GPUs of the machine can reach.
  MemoryPath memory = MemoryPath::kHost;
};

// How many connections a pair of machines needs over a link of this rate (0:
// unknown), and why; no reason for 1: more where one TCP stream does not fill
// it, or the hash of a bond gives each connection a cable.
struct PlannedConnections {
  int connections = 1;
  std::string why = {};
};
PlannedConnections ConnectionsOver(NetworkKind network, double gbps,
                                   bool is_over_bond);

// The settings of `host`. A machine that the plan does not have opens no ports.
HostSettings Apply(const Plan& plan, absl::string_view host);

// The ports among `ports` ("mlx5_0:1") whose cards are nearest to the machine's
// GPU with this address ("0000:81:00.0"); all where nothing says which are.
std::vector<std::string> PortsNear(const Machine& machine,
                                   absl::string_view bus_id,
                                   std::vector<std::string> ports);

// What PlanToJson wrote: all that its digest is of. InvalidArgument names what
// is missing or cannot be, or says that it was changed.
absl::StatusOr<Plan> PlanFromJson(absl::string_view text);

// Reads a file of PlanToJson, or a run's summary.json; "summary.json#2bit" is
// the plan of the run with that setting, where there are several. Errors name
// the file.
absl::StatusOr<std::shared_ptr<const GivenPlan>> LoadPlan(
    const std::string& path);

}  // namespace telegrad
