#include "topology/apply.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "topology/path.h"
#include "topology/planner/network.h"

namespace telegrad {
namespace {

void TakePorts(const Plan& plan, const MachinePlan& machine,
               HostSettings* settings) {
  if (!machine.gpus.empty()) {
    settings->memory =
        std::ranges::min_element(machine.gpus, {}, &GpuPlan::memory)->memory;
  }
  for (const GpuPlan& gpu : machine.gpus) {
    if (!IsRdma(plan.network)) continue;
    for (const Rail& rail : gpu.rails) {
      const std::string name = absl::StrCat(rail.nic, ":", rail.port);
      if (std::ranges::find(settings->rdma_ports, name) !=
          settings->rdma_ports.end()) {
        continue;
      }
      settings->rdma_ports.push_back(name);
      if (plan.network == NetworkKind::kRoceV2 && rail.gid >= 0) {
        settings->gid_rows[name] = rail.gid;
      }
    }
  }
}

}  // namespace

HostSettings Apply(const Plan& plan, absl::string_view host) {
  HostSettings settings;
  const auto machine =
      std::ranges::find(plan.machines, host, &MachinePlan::host);
  if (machine != plan.machines.end()) TakePorts(plan, *machine, &settings);
  return settings;
}

std::vector<std::string> PortsNear(const Machine& machine,
                                   absl::string_view bus_id,
                                   std::vector<std::string> ports) {
  Bdf bdf;
  if (!ParseBdf(bus_id, &bdf)) return ports;
  const auto gpu = std::ranges::find(machine.gpus, bdf, &Gpu::bdf);
  const auto row = static_cast<size_t>(gpu - machine.gpus.begin());
  if (row >= machine.gpu_nic.size()) return ports;
  const auto distance = [&](const std::string& port) {
    const auto card = std::ranges::find(
        machine.nics, port.substr(0, port.rfind(':')), &Nic::name);
    const auto column = static_cast<size_t>(card - machine.nics.begin());
    return Distance(column < machine.gpu_nic[row].size()
                        ? machine.gpu_nic[row][column].path
                        : PathClass::kUnknown);
  };
  int least = Distance(PathClass::kUnknown);
  for (const std::string& port : ports) {
    least = std::min(least, distance(port));
  }
  std::erase_if(
      ports, [&](const std::string& port) { return distance(port) > least; });
  return ports;
}

}  // namespace telegrad
