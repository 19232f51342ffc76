#include "topology/detect.h"

#include <utility>

#include "topology/detect/gdr.h"
#include "topology/detect/gpu.h"
#include "topology/detect/host.h"
#include "topology/detect/infiniband.h"
#include "topology/detect/net.h"
#include "topology/path.h"

namespace telegrad {
namespace {

void ForceLinkRate(double gbps, Machine& machine) {
  for (Nic& nic : machine.nics) {
    for (Port& port : nic.ports) {
      port.gbps.value = gbps;
      port.gbps.why.insert(port.gbps.why.begin(),
                           {.what = "forced by TELEGRAD_LINK_GBPS",
                            .source = "env TELEGRAD_LINK_GBPS",
                            .confidence = Confidence::kAssumed});
    }
  }
}

}  // namespace

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
  if (options.link_gbps.has_value()) {
    ForceLinkRate(*options.link_gbps, machine);
  }
  detect::JudgeGdr(root, options, machine);
  FillPaths(machine);
  return machine;
}

}  // namespace telegrad
