#include "topology/apply.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
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

}  // namespace telegrad
