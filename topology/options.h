#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

// A row of the GID table for RoCE ports.
struct ForcedGid {
  std::string nic = {};  // empty: of every device
  int port = 0;          // 0: of every port
  int index = 0;
  bool operator==(const ForcedGid&) const = default;
};

// What a user says about a machine, over what detection finds; docs/topology.md
// has the table. Each wins with confidence "assumed".
struct TopologyOptions {
  std::string topo_file = {};            // TELEGRAD_TOPO_FILE
  std::string nics = {};                 // TELEGRAD_NICS
  std::vector<ForcedGid> gids = {};      // TELEGRAD_GID_INDEX; the first counts
  std::optional<double> link_gbps = {};  // TELEGRAD_LINK_GBPS
  std::optional<bool> gdr = {};          // TELEGRAD_GDR: on, off; auto: none
  std::string wanted_interface = {};  // the rendezvous' interface; empty: any
  bool probe = false;                 // functional probes are allowed
  // Variables of other software, for the doctor: UCX_*, NCCL_*, FI_*, ...
  std::map<std::string, std::string> environment = {};
};

// From NAME=VALUE pairs. Errors: InvalidArgument with the name and the value.
absl::StatusOr<TopologyOptions> ParseTopologyOptions(
    const std::map<std::string, std::string>& environment);

// From the environment of this process. The one place of this layer that reads
// it.
absl::StatusOr<TopologyOptions> TopologyOptionsFromEnvironment();

}  // namespace telegrad
