#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "topology/machine.h"

namespace telegrad::topo {

// What `path` describes (MachineFromFile); without one, what TELEGRAD_TOPO_FILE
// names; else this machine, whose functions are tried with `probe`.
absl::StatusOr<Machine> LoadMachine(const std::string& path, bool probe);

}  // namespace telegrad::topo
