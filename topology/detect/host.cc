#include "topology/detect/host.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace telegrad::detect {
namespace {

int CountOnline(const SysRoot& root, const std::string& path) {
  const Line line = ReadLine(root, path);
  return line.ok() ? static_cast<int>(ParseCpuList(line.text).size()) : 0;
}

void FindVirtualMachine(const SysRoot& root, Capabilities& capabilities) {
  std::vector<Evidence>& why = capabilities.why["in_vm"];
  const Line hypervisor = ReadLine(root, "/sys/hypervisor/type");
  const Line product = ReadLine(root, "/sys/class/dmi/id/product_name");
  constexpr size_t kFirstCpus = 16384;
  const Line cpus = ReadLine(root, "/proc/cpuinfo", kFirstCpus);
  if (hypervisor.ok()) {
    capabilities.in_vm = Tri::kYes;
    why.push_back(hypervisor.Why("type of the hypervisor"));
  }
  if (cpus.ok()) {
    const bool has_flag = absl::StrContains(cpus.text, " hypervisor");
    if (has_flag) capabilities.in_vm = Tri::kYes;
    // Arm has no such flag.
    const bool is_x86 = absl::StrContains(cpus.text, "\nflags");
    if (!has_flag && is_x86 && capabilities.in_vm == Tri::kUnknown) {
      capabilities.in_vm = Tri::kNo;
    }
    why.push_back({.what = "CPU flag hypervisor",
                   .source = cpus.path,
                   .raw = has_flag ? "hypervisor" : "no such flag"});
  }
  if (product.ok()) why.push_back(product.Why("product"));
}

void FindContainer(const SysRoot& root, Capabilities& capabilities) {
  std::vector<Evidence>& why = capabilities.why["in_container"];
  for (const char* mark : {"/.dockerenv", "/run/.containerenv"}) {
    if (!root.HasEntry(mark)) continue;
    capabilities.in_container = Tri::kYes;
    why.push_back({.what = "mark of a container", .source = mark});
  }
  const Line cgroup = ReadLine(root, "/proc/1/cgroup");
  for (const char* word :
       {"docker", "kubepods", "containerd", "libpod", "lxc"}) {
    if (!absl::StrContains(cgroup.text, word)) continue;
    capabilities.in_container = Tri::kYes;
    why.push_back(cgroup.Why("control group of process 1"));
    break;
  }
  if (capabilities.in_container == Tri::kUnknown && cgroup.error == 0) {
    capabilities.in_container = Tri::kNo;
    why.push_back(cgroup.Why("no mark of a container", Confidence::kInferred));
  }
}

}  // namespace

void AddHost(const SysRoot& root, Machine& machine) {
  machine.host = Printable(ReadLine(root, "/proc/sys/kernel/hostname").text);
  machine.arch = Printable(ReadLine(root, "/proc/sys/kernel/arch").text);
  machine.cpus = CountOnline(root, "/sys/devices/system/cpu/online");
  machine.numa_nodes = CountOnline(root, "/sys/devices/system/node/online");
  if (machine.numa_nodes == 0) {  // kernels before 2.6.31
    const std::vector<std::string> names =
        root.List("/sys/devices/system/node");
    machine.numa_nodes = static_cast<int>(
        std::count_if(names.begin(), names.end(), [](const std::string& name) {
          return absl::StartsWith(name, "node");
        }));
  }
  FindVirtualMachine(root, machine.capabilities);
  FindContainer(root, machine.capabilities);
}

}  // namespace telegrad::detect
