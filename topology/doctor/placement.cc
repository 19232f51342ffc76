#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "topology/doctor/check.h"
#include "topology/path.h"

namespace telegrad::doctor {
namespace {

bool IsUsable(const Nic& nic) {
  return nic.is_rdma &&
         std::any_of(nic.ports.begin(), nic.ports.end(), [](const Port& port) {
           return !port.state.known() || IsActive(port);
         });
}

// Index of the usable RDMA NIC nearest to GPU `gpu`; -1: none, or no matrix.
int NearestNic(const Machine& machine, size_t gpu) {
  if (gpu >= machine.gpu_nic.size()) return -1;
  const std::vector<PathInfo>& row = machine.gpu_nic[gpu];
  int nearest = -1;
  for (size_t n = 0; n < row.size() && n < machine.nics.size(); ++n) {
    if (!IsUsable(machine.nics[n])) continue;
    if (nearest < 0 || Distance(row[n].path) <
                           Distance(row[static_cast<size_t>(nearest)].path)) {
      nearest = static_cast<int>(n);
    }
  }
  return nearest;
}

}  // namespace

void CheckFarNic(const Machine& machine, const DoctorOptions&, Report& report) {
  if (!HasGpuAndRdma(machine)) {
    return report.Ok("no GPU has an RDMA device to reach");
  }
  for (size_t g = 0; g < machine.gpus.size(); ++g) {
    const int nearest = NearestNic(machine, g);
    if (nearest < 0) continue;
    const Nic& nic = machine.nics[static_cast<size_t>(nearest)];
    const PathInfo& path = machine.gpu_nic[g][static_cast<size_t>(nearest)];
    if (path.path != PathClass::kNode && path.path != PathClass::kSys) continue;
    const int node = nic.position.numa_node;
    report.Add(Level::kWarn,
               absl::StrCat("GPU ", ToString(machine.gpus[g].bdf),
                            " reaches its nearest NIC ", nic.name, " by ",
                            Name(path.path), "; host staging is used"),
               path.why,
               node < 0 ? "pin the process to the NIC's NUMA node"
                        : absl::StrCat("numactl --cpunodebind=", node,
                                       " --membind=", node, " COMMAND"));
  }
  if (report.empty()) report.Ok("every GPU has a NIC near by");
}

void CheckSharedNic(const Machine& machine, const DoctorOptions&,
                    Report& report) {
  std::set<std::string> cards;
  double gbps = 0;
  for (const Nic& nic : machine.nics) {
    if (!IsUsable(nic)) continue;
    cards.insert(nic.name);
    for (const Port& port : nic.ports) gbps += port.gbps.value_or(0);
  }
  if (machine.gpus.empty() || cards.empty() ||
      cards.size() >= machine.gpus.size()) {
    return report.Ok(absl::StrCat(machine.gpus.size(), " GPUs, ", cards.size(),
                                  " usable RDMA devices"));
  }
  const double share = gbps / static_cast<double>(machine.gpus.size());
  report.Add(
      Level::kInfo,
      absl::StrCat(
          machine.gpus.size(), " GPUs share ", cards.size(), " RDMA devices",
          gbps > 0 ? absl::StrCat(": ", Gbps(share), " for each") : ""),
      absl::StrJoin(cards, ", "), "");
}

void CheckFlatVm(const Machine& machine, const DoctorOptions&, Report& report) {
  if (machine.gpus.empty()) return report.Ok("there is no GPU to place");
  if (machine.capabilities.in_vm == Tri::kNo) {
    return report.Ok("it is no virtual machine");
  }
  const auto has_switch = [](const auto& device) {
    return !device.position.switches.empty();
  };
  if (std::any_of(machine.gpus.begin(), machine.gpus.end(), has_switch) ||
      std::any_of(machine.nics.begin(), machine.nics.end(), has_switch)) {
    return report.Ok("PCIe switches are shown");
  }
  if (machine.capabilities.in_vm == Tri::kUnknown) {
    return report.Add(Level::kUnknown,
                      "no PCIe switch is shown; whether a virtual machine "
                      "hides them is unknown",
                      machine.source, "run it on the machine itself");
  }
  report.Add(Level::kWarn,
             "this virtual machine hides its PCIe switches, so paths between "
             "GPUs and NICs are unknown",
             Why(machine, "in_vm"),
             "give the instance type's topology: export "
             "TELEGRAD_TOPO_FILE=FILE.xml (the cloud's NCCL topology file)");
}

void CheckNumaUnknown(const Machine& machine, const DoctorOptions&,
                      Report& report) {
  std::vector<std::string> devices;
  for (const Gpu& gpu : machine.gpus) {
    if (gpu.position.numa_node < 0) devices.push_back(ToString(gpu.bdf));
  }
  for (const Nic& nic : machine.nics) {
    if (nic.position.numa_node < 0) devices.push_back(nic.name);
  }
  if (devices.empty() || machine.numa_nodes == 1) {
    return report.Ok(machine.numa_nodes == 1
                         ? "there is one NUMA node"
                         : "every device tells its NUMA node");
  }
  report.Add(
      Level::kInfo,
      absl::StrCat("the NUMA node is unknown of ", absl::StrJoin(devices, ", "),
                   "; no affinity is applied"),
      "numa_node -1 or absent", "");
}

}  // namespace telegrad::doctor
