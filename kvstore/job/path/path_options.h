#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "transport/transport.h"

namespace telegrad {

struct GivenPlan;      // topology/plan.h
struct MachineReport;  // kvstore/job/path/data_path.h
enum class GdrWish : uint8_t;

// A value of TransportOptions::connections: the planner chooses the number.
constexpr size_t kAutoConnections = 0;

// What a member was told about its data, and how it sees its machine.
struct PathOptions {
  // The name may be a network's, or "auto": the planner chooses. The number of
  // connections may be kAutoConnections.
  TransportOptions transport = {};
  // Instead of what would be planned; all workers have the same. Null: none.
  std::shared_ptr<const GivenPlan> given = nullptr;
  // Looks at the machine; null: nothing is known of it. Not called where the
  // bind address is loopback, from which no card is reached.
  std::function<MachineReport()> look = nullptr;
  // Whether workers of a host sum first, so that one of them pushes; none: the
  // planner chooses. MakeKVStore then starts what that needs. For workers.
  std::optional<bool> tier_one = false;
  // The name of the host whose memory this worker shares; empty: this machine's
  // (in containers, each network's).
  std::string host = {};
  // For a worker whose tensors are on GPUs: whether the network takes them from
  // there (GPUDirect RDMA). None: all frames are in host memory.
  std::optional<GdrWish> gdr = {};
  // PCI address of the GPU that a worker's tensors are on, "0000:81:00.0";
  // empty: not known. Of the plan's cards on its host it opens those nearest to
  // it.
  std::string gpu_bus_id = {};
};

// Whether such options can be followed, as far as that is known without a
// context: as CheckTransport, but with all that PathOptions allows.
absl::Status CheckPath(const TransportOptions& options);
// Checks these options, and what can be known here of a given plan: whether
// flags, this host and its machine agree with it. Looks at the machine.
absl::Status CheckPath(const PathOptions& options);

}  // namespace telegrad
