#include "topology/numa.h"

#include <algorithm>

#include "topology/detect/gpu.h"
#include "topology/detect/host.h"
#include "topology/detect/pci.h"
#include "topology/path.h"

namespace telegrad {

int NumaNodeOf(const Machine& machine, absl::string_view bus_id) {
  Bdf bdf;
  if (machine.numa_nodes < 2 || !ParseBdf(bus_id, &bdf)) return -1;
  const auto gpu = std::ranges::find(machine.gpus, bdf, &Gpu::bdf);
  return gpu == machine.gpus.end() ? -1 : gpu->position.numa_node;
}

int NumaNodeOf(const SysRoot& root, absl::string_view bus_id) {
  Machine machine;
  detect::AddHost(root, machine);
  detect::AddGpus(root, detect::PciTree(root), machine);
  return NumaNodeOf(machine, bus_id);
}

}  // namespace telegrad
