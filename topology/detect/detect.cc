#include "topology/detect.h"

#include "topology/detect/gdr.h"
#include "topology/detect/gpu.h"
#include "topology/detect/host.h"
#include "topology/detect/infiniband.h"
#include "topology/detect/limits.h"
#include "topology/detect/live.h"
#include "topology/detect/net.h"
#include "topology/path.h"

namespace telegrad {

absl::StatusOr<Machine> DetectMachine(const SysRoot& root,
                                      const TopologyOptions& options) {
  Machine machine;
  machine.source = root.source();
  machine.environment = options.environment;
  const detect::PciTree pci(root);
  detect::AddHost(root, machine);
  detect::AddInterfaces(root, machine);
  detect::AddRdmaNics(root, pci, options, machine);
  detect::AddEthernetNics(root, pci, machine);
  detect::AddGpus(root, pci, machine);
  detect::AddCapabilities(root, pci, machine);
  detect::AddLimits(root, machine.capabilities);
  if (root.is_live()) detect::AddLiveFacts(options, machine);
  FillPaths(machine);
  detect::JudgeGdr(root, machine);
  ApplyOverrides(options, machine);
  return machine;
}

}  // namespace telegrad
