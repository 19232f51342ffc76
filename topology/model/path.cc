#include "topology/path.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

bool SharesSwitch(const PciPosition& a, const PciPosition& b) {
  return std::any_of(
      a.switches.begin(), a.switches.end(), [&](const std::string& each) {
        return std::find(b.switches.begin(), b.switches.end(), each) !=
               b.switches.end();
      });
}

// Switches of NVLink that a GPU reaches.
std::set<std::string> NvSwitches(const Machine& machine, int gpu) {
  std::set<std::string> names;
  for (const GpuLink& link : machine.links) {
    if (link.a == gpu && link.b == GpuLink::kToSwitch) {
      names.insert(link.b_name);
    }
  }
  return names;
}

// By NVLink alone; unknown where there is none.
PathInfo ClassifyNvlink(const Machine& machine, int a, int b) {
  for (const GpuLink& link : machine.links) {
    const bool joins =
        (link.a == a && link.b == b) || (link.a == b && link.b == a);
    if (joins) {
      return {PathClass::kNvl, PathClass::kUnknown,
              absl::StrCat(link.lanes, " NVLinks")};
    }
  }
  const std::set<std::string> mine = NvSwitches(machine, a);
  const std::set<std::string> others = NvSwitches(machine, b);
  if (mine.empty() || others.empty()) return {};
  for (const std::string& name : mine) {
    if (others.count(name) > 0) {
      return {PathClass::kNvl, PathClass::kUnknown,
              absl::StrCat("through NVSwitch ", name)};
    }
  }
  return {PathClass::kNvl, PathClass::kUnknown,
          "through NVSwitches that are assumed to be joined (as in a DGX-2): "
          "the source lists no links between switches"};
}

// Whether each GPU has a link of its own to its CPU.
std::vector<bool> HaveCpuLinks(const Machine& machine) {
  std::vector<bool> have(machine.gpus.size());
  for (const GpuLink& link : machine.links) {
    const auto gpu = static_cast<size_t>(link.a);
    if (link.b == GpuLink::kToCpu && gpu < have.size()) have[gpu] = true;
  }
  return have;
}

// A path that PCIe takes up to one CPU, by a GPU's own link to that CPU.
void PreferCpuLink(PathInfo& path) {
  if (path.pcie != PathClass::kPhb && path.pcie != PathClass::kNode) return;
  path.path = PathClass::kC2c;
  path.why = absl::StrCat("chip to chip to the CPU; by PCIe ", path.why);
}

PathInfo ClassifyGpuNic(const Gpu& gpu, const Nic& nic, bool has_cpu_link) {
  const bool is_same = nic.bdf.known() &&
                       nic.bdf.value->domain == gpu.bdf.domain &&
                       nic.bdf.value->bus == gpu.bdf.bus &&
                       nic.bdf.value->device == gpu.bdf.device;
  if (is_same) {
    return {PathClass::kLoc, PathClass::kLoc, "functions of one PCI device"};
  }
  PathInfo path = ClassifyPath(gpu.position, nic.position);
  // What is no PCI device has only an assumed place.
  if (has_cpu_link && nic.bdf.known()) PreferCpuLink(path);
  return path;
}

PathInfo ClassifyGpus(const Machine& machine, size_t a, size_t b,
                      bool have_cpu_links) {
  if (a == b) return {PathClass::kLoc, PathClass::kLoc, "itself"};
  PathInfo path =
      ClassifyPath(machine.gpus[a].position, machine.gpus[b].position);
  PathInfo nvlink =
      ClassifyNvlink(machine, static_cast<int>(a), static_cast<int>(b));
  if (nvlink.path != PathClass::kUnknown) {
    nvlink.pcie = path.pcie;
    return nvlink;
  }
  if (have_cpu_links) PreferCpuLink(path);
  return path;
}

}  // namespace

PathInfo ClassifyPath(const PciPosition& a, const PciPosition& b) {
  if (!a.switches.empty() && !b.switches.empty()) {
    if (a.switches.front() == b.switches.front()) {
      return {PathClass::kPix, PathClass::kPix,
              absl::StrCat("same PCIe switch ", a.switches.front())};
    }
    if (SharesSwitch(a, b)) {
      return {PathClass::kPxb, PathClass::kPxb,
              absl::StrCat("PCIe switches ", a.switches.front(), " and ",
                           b.switches.front(), " are joined")};
    }
  }
  if (!a.host_bridge.empty() && a.host_bridge == b.host_bridge) {
    return {PathClass::kPhb, PathClass::kPhb,
            absl::StrCat("same host bridge ", a.host_bridge)};
  }
  const bool packages = a.package >= 0 && b.package >= 0;
  const bool nodes = a.numa_node >= 0 && b.numa_node >= 0;
  if ((packages && a.package == b.package) ||
      (!packages && nodes && a.numa_node == b.numa_node)) {
    return {PathClass::kNode, PathClass::kNode,
            absl::StrCat("different host bridges ", a.host_bridge, ", ",
                         b.host_bridge, ", same ",
                         packages ? absl::StrCat("package ", a.package)
                                  : absl::StrCat("NUMA node ", a.numa_node))};
  }
  if (packages || nodes) {
    return {PathClass::kSys, PathClass::kSys,
            packages ? absl::StrCat("packages ", a.package, " and ", b.package)
                     : absl::StrCat("NUMA nodes ", a.numa_node, " and ",
                                    b.numa_node)};
  }
  return {PathClass::kUnknown, PathClass::kUnknown,
          "the source does not show where they hang"};
}

bool IsGpuFunction(uint32_t device_class, uint32_t vendor) {
  constexpr uint32_t kAccelerator = 0x1200;
  constexpr uint32_t kOtherDisplay = 0x0380;
  const uint32_t kind = device_class >> 8;
  switch (vendor) {
    case 0x10de:  // NVIDIA
      return kind >> 8 == 0x03;
    case 0x1002:  // AMD
      return kind == kOtherDisplay || kind == kAccelerator;
    case 0x8086:  // Intel
      return kind == kOtherDisplay;
    default:
      return false;
  }
}

int Distance(PathClass path) {
  if (path == PathClass::kC2c) return 2 * static_cast<int>(PathClass::kPxb) + 1;
  return 2 * static_cast<int>(path);
}

void FillPaths(Machine& machine) {
  const size_t num_gpus = machine.gpus.size();
  machine.gpu_nic.assign(num_gpus, {});
  machine.gpu_gpu.assign(num_gpus, {});
  const std::vector<bool> to_cpu = HaveCpuLinks(machine);
  for (size_t g = 0; g < num_gpus; ++g) {
    for (const Nic& nic : machine.nics) {
      machine.gpu_nic[g].push_back(
          ClassifyGpuNic(machine.gpus[g], nic, to_cpu[g]));
    }
    for (size_t other = 0; other < num_gpus; ++other) {
      machine.gpu_gpu[g].push_back(
          ClassifyGpus(machine, g, other, to_cpu[g] && to_cpu[other]));
    }
  }
}

}  // namespace telegrad
