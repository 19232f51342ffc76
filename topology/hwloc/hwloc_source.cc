#include "topology/hwloc/hwloc_source.h"

#include <hwloc.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "topology/hwloc/fill.h"
#include "topology/import.h"

namespace telegrad {
namespace {

constexpr const char* kLeftOut[] = {"cuda", "gl",     "levelzero",
                                    "nvml", "opencl", "rsmi"};

absl::Status Failed(const char* what) {
  return absl::UnavailableError(
      absl::StrCat("libhwloc: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::string> XmlOfHwloc() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return Failed("init");
  const absl::Cleanup destroy = [topology] {
    hwloc_topology_destroy(topology);
  };
  // A component that is not there does no harm.
  for (const char* component : kLeftOut) {
    hwloc_topology_set_components(
        topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  if (hwloc_topology_set_io_types_filter(
          topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
      hwloc_topology_load(topology) != 0) {
    return Failed("load");
  }
  if (hwloc_topology_is_thissystem(topology) == 0) {
    return absl::FailedPreconditionError(
        "libhwloc shows another machine: HWLOC_XMLFILE, HWLOC_SYNTHETIC or "
        "HWLOC_FSROOT is set; unset it");
  }
  char* text = nullptr;
  int size = 0;
  if (hwloc_topology_export_xmlbuffer(topology, &text, &size, 0) != 0) {
    return Failed("export");
  }
  const absl::Cleanup free = [=] { hwloc_free_xmlbuffer(topology, text); };
  return std::string(text);
}

void AddHwlocFacts(const TopologyOptions& /*options*/, Machine& machine) {
  if (!hwloc::LeavesOpen(machine)) return;
  const std::string source = absl::StrCat("hwloc ", HWLOC_VERSION);
  const absl::StatusOr<std::string> xml = XmlOfHwloc();
  const absl::StatusOr<Machine> seen =
      xml.ok() ? MachineFromText(*xml) : xml.status();
  if (seen.ok()) {
    return hwloc::FillFrom(*seen, source, machine);
  }
  machine.notes.push_back({.what = "what other sources left open",
                           .source = source,
                           .raw = std::string(seen.status().message())});
}

}  // namespace telegrad
