#include "topology/cli/load.h"

#include "base/status_macros.h"
#include "topology/detect.h"
#include "topology/import.h"

namespace telegrad::topo {

absl::StatusOr<Machine> LoadMachine(const std::string& path, bool probe) {
  ASSIGN_OR_RETURN(TopologyOptions options, TopologyOptionsFromEnvironment());
  options.probe = probe;
  const std::string& from = path.empty() ? options.topo_file : path;
  if (!from.empty()) return MachineFromFile(from, options);
  return DetectMachine(SysRoot::Live(), options);
}

}  // namespace telegrad::topo
