#include "topology/hwloc/fill.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace telegrad::hwloc {
namespace {

// Where there is one NUMA node the kernel gives devices none.
bool IsOpen(const PciPosition& position, int numa_nodes) {
  return position.host_bridge.empty() ||
         (numa_nodes > 1 && (position.package < 0 || position.numa_node < 0));
}

class Filler {
 public:
  Filler(const std::string& source, Machine& machine)
      : source_(source), machine_(machine) {}

  void Number(const char* what, int theirs, int& ours) {
    if (ours > 0 || theirs <= 0) return;
    ours = theirs;
    Note(what, absl::StrCat(theirs));
  }

  void Position(const std::string& device, const PciPosition& theirs,
                PciPosition& ours) {
    Place(absl::StrCat(device, " NUMA node"), theirs.numa_node, ours.numa_node);
    Place(absl::StrCat(device, " package"), theirs.package, ours.package);
    // The tree is one fact: switches without their bridge say nothing.
    if (!ours.host_bridge.empty() || theirs.host_bridge.empty()) return;
    ours.host_bridge = theirs.host_bridge;
    ours.switches = theirs.switches;
    Note(absl::StrCat(device, " host bridge"), theirs.host_bridge);
  }

 private:
  void Place(const std::string& what, int theirs, int& ours) {
    if (ours >= 0 || theirs < 0) return;
    ours = theirs;
    Note(what, absl::StrCat(theirs));
  }

  void Note(const std::string& what, const std::string& raw) {
    machine_.notes.push_back({.what = what, .source = source_, .raw = raw});
  }

  const std::string& source_;
  Machine& machine_;
};

}  // namespace

bool LeavesOpen(const Machine& machine) {
  const auto is_open = [&machine](const PciPosition& position) {
    return IsOpen(position, machine.numa_nodes);
  };
  return machine.cpus == 0 || machine.numa_nodes == 0 ||
         std::any_of(machine.gpus.begin(), machine.gpus.end(),
                     [&](const Gpu& gpu) { return is_open(gpu.position); }) ||
         std::any_of(machine.nics.begin(), machine.nics.end(),
                     [&](const Nic& nic) {
                       return nic.bdf.known() && is_open(nic.position);
                     });
}

void FillFrom(const Machine& other, const std::string& source,
              Machine& machine) {
  Filler filler(source, machine);
  filler.Number("processors", other.cpus, machine.cpus);
  filler.Number("NUMA nodes", other.numa_nodes, machine.numa_nodes);
  for (Gpu& gpu : machine.gpus) {
    const auto seen =
        std::find_if(other.gpus.begin(), other.gpus.end(),
                     [&](const Gpu& each) { return each.bdf == gpu.bdf; });
    if (seen == other.gpus.end()) continue;
    filler.Position(gpu.name, seen->position, gpu.position);
  }
  for (Nic& nic : machine.nics) {
    if (!nic.bdf.known()) continue;
    const auto seen = std::find_if(
        other.nics.begin(), other.nics.end(),
        [&](const Nic& each) { return each.bdf.value == nic.bdf.value; });
    if (seen == other.nics.end()) continue;
    filler.Position(nic.name, seen->position, nic.position);
  }
}

}  // namespace telegrad::hwloc
