#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "topology/cli/show.h"
#include "topology/path.h"

namespace telegrad::topo {
namespace {

std::string Shown(const Evidence& why) {
  std::string text = absl::StrCat(why.what, " (", why.source);
  if (!why.raw.empty()) absl::StrAppend(&text, ": \"", why.raw, "\"");
  if (why.error != 0) absl::StrAppend(&text, ", errno ", why.error);
  return absl::StrCat(text, ", ", Name(why.confidence), ")");
}

// Lines with their depth in the tree.
class Lines {
 public:
  explicit Lines(bool why) : why_(why) {}
  void Add(int depth, absl::string_view text) {
    absl::StrAppend(&text_, std::string(2 * static_cast<size_t>(depth), ' '),
                    text, "\n");
  }
  void Why(int depth, const std::vector<Evidence>& why) {
    if (!why_) return;
    for (const Evidence& each : why) Add(depth, "because " + Shown(each));
  }
  const std::string& text() const { return text_; }

 private:
  bool why_;
  std::string text_ = {};
};

template <typename T>
std::string Number(const Known<T>& known, const char* unit) {
  return known.known() ? absl::StrCat(*known.value, unit)
                       : absl::StrCat("?", unit);
}

std::string StateName(const Known<int>& state) {
  switch (state.value_or(0)) {
    case 1:
      return "DOWN";
    case 2:
      return "INIT";
    case 3:
      return "ARMED";
    case 4:
      return "ACTIVE";
    default:
      return "state unknown";
  }
}

void AddGids(const Port& port, int depth, Lines& lines) {
  constexpr size_t kMaxRows = 32;
  for (size_t i = 0; i < port.gids.size() && i < kMaxRows; ++i) {
    const Gid& gid = port.gids[i];
    std::string raw;
    for (size_t byte = 0; byte < gid.raw.size(); ++byte) {
      absl::StrAppendFormat(
          &raw, "%s%02x", byte % 2 == 0 && byte > 0 ? ":" : "", gid.raw[byte]);
    }
    const bool chosen =
        port.chosen_gid.known() && *port.chosen_gid.value == gid.index;
    lines.Add(depth,
              absl::StrFormat("%s GID %d  %s  %s  %s  %s", chosen ? "*" : " ",
                              gid.index, raw, Name(gid.type), Name(gid.scope),
                              gid.net_interface));
  }
  if (port.gids.size() > kMaxRows) {
    lines.Add(depth, absl::StrCat(port.gids.size() - kMaxRows, " more rows"));
  }
}

void AddPort(const Port& port, int depth, Lines& lines) {
  lines.Add(depth, absl::StrCat(
                       "port ", port.number, "  ", Name(port.fabric), "  ",
                       StateName(port.state), "  ", Number(port.gbps, " Gb/s"),
                       "  MTU ", Number(port.active_mtu, ""), "  ",
                       port.net_interface.empty() ? "no interface"
                                                  : port.net_interface));
  lines.Why(depth + 1, port.state.why);
  lines.Why(depth + 1, port.gbps.why);
  lines.Why(depth + 1, port.active_mtu.why);
  AddGids(port, depth + 1, lines);
  lines.Why(depth + 1, port.gid_rows.why);
  // Why this row, or none, is what people ask first.
  if (port.chosen_gid.why.empty()) return;
  const std::vector<Evidence>& why = port.chosen_gid.why;
  for (const Evidence& each : why) {
    if (each.what.find("GID") != std::string::npos) {
      lines.Add(depth + 1, Shown(each));
    }
  }
  lines.Why(depth + 1, why);
}

// A device with the names of what is above it, outermost first.
struct Device {
  std::vector<std::string> above = {};
  const Gpu* gpu = nullptr;
  const Nic* nic = nullptr;
};

std::vector<std::string> Above(const PciPosition& position) {
  std::string numa = position.numa_node < 0
                         ? std::string("NUMA node unknown")
                         : absl::StrCat("NUMA node ", position.numa_node);
  if (position.package >= 0) {
    absl::StrAppend(&numa, ", package ", position.package);
  }
  std::vector<std::string> names = {numa};
  names.push_back(position.host_bridge.empty()
                      ? "no PCI position"
                      : absl::StrCat("host bridge ", position.host_bridge));
  for (auto each = position.switches.rbegin(); each != position.switches.rend();
       ++each) {
    names.push_back("switch " + *each);
  }
  return names;
}

void AddDevice(const Device& device, int depth, Lines& lines) {
  if (device.gpu != nullptr) {
    const Gpu& gpu = *device.gpu;
    lines.Add(depth, absl::StrCat("GPU ", ToString(gpu.bdf), "  ", gpu.model,
                                  gpu.name == ToString(gpu.bdf)
                                      ? std::string()
                                      : absl::StrCat("  ", gpu.name)));
    return;
  }
  const Nic& nic = *device.nic;
  lines.Add(depth, absl::StrCat(
                       "NIC ", nic.name, "  ",
                       nic.bdf.known() ? ToString(*nic.bdf.value) : "no PCI",
                       "  ", nic.is_rdma ? "RDMA" : "no RDMA", "  ", nic.board,
                       nic.driver.empty() ? "" : "  driver " + nic.driver));
  if (nic.pcie_gbps.known()) {
    lines.Add(depth + 1,
              absl::StrCat(
                  absl::StrFormat("PCIe %.0f Gb/s", *nic.pcie_gbps.value),
                  nic.pcie_now_gbps.known()
                      ? absl::StrFormat(", now %.0f", *nic.pcie_now_gbps.value)
                      : ""));
  }
  for (const Port& port : nic.ports) AddPort(port, depth + 1, lines);
}

void AddTree(const Machine& machine, Lines& lines) {
  std::vector<Device> devices;
  for (const Gpu& gpu : machine.gpus) {
    devices.push_back({.above = Above(gpu.position), .gpu = &gpu});
  }
  for (const Nic& nic : machine.nics) {
    devices.push_back({.above = Above(nic.position), .nic = &nic});
  }
  std::stable_sort(
      devices.begin(), devices.end(),
      [](const Device& a, const Device& b) { return a.above < b.above; });
  std::vector<std::string> shown;
  for (const Device& device : devices) {
    size_t same = 0;
    while (same < shown.size() && same < device.above.size() &&
           shown[same] == device.above[same]) {
      ++same;
    }
    for (size_t i = same; i < device.above.size(); ++i) {
      lines.Add(static_cast<int>(i), device.above[i]);
    }
    shown = device.above;
    AddDevice(device, static_cast<int>(shown.size()), lines);
  }
  if (devices.empty()) lines.Add(0, "no GPU and no network card was found");
}

// As nvidia-smi topo -m has it.
void AddMatrix(const Machine& machine, bool why, Lines& lines) {
  if (machine.gpus.empty()) return;
  std::string head = absl::StrFormat("%-8s", "");
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    absl::StrAppendFormat(&head, "%-8s", absl::StrCat("GPU", i));
  }
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    absl::StrAppendFormat(&head, "%-8s", absl::StrCat("NIC", i));
  }
  lines.Add(0, head);
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    std::string row = absl::StrFormat("%-8s", absl::StrCat("GPU", i));
    for (const PathInfo& path : machine.gpu_gpu[i]) {
      absl::StrAppendFormat(
          &row, "%-8s", path.path == PathClass::kLoc ? "X" : Name(path.path));
    }
    for (const PathInfo& path : machine.gpu_nic[i]) {
      absl::StrAppendFormat(&row, "%-8s", Name(path.path));
    }
    lines.Add(0, row);
  }
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    lines.Add(1, absl::StrCat("GPU", i, " ", ToString(machine.gpus[i].bdf)));
    for (size_t nic = 0; why && nic < machine.nics.size(); ++nic) {
      const PathInfo& path = machine.gpu_nic[i][nic];
      lines.Add(2, absl::StrCat("-> ", machine.nics[nic].name, " ",
                                Name(path.path), ": ", path.why));
    }
  }
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    lines.Add(1, absl::StrCat("NIC", i, " ", machine.nics[i].name));
  }
}

void AddCapabilities(const Capabilities& has, Lines& lines) {
  const std::pair<const char*, Tri> kAll[] = {
      {"gdr", has.gdr},
      {"gdr_peermem", has.gdr_peermem},
      {"gdr_dmabuf_nic", has.gdr_dmabuf_nic},
      {"gdr_dmabuf_gpu", has.gdr_dmabuf_gpu},
      {"gdr_probe", has.gdr_probe},
      {"gdrcopy", has.gdrcopy},
      {"ucx_cuda", has.ucx_cuda},
      {"ucx_rdma", has.ucx_rdma},
      {"ofi_efa", has.ofi_efa},
      {"ofi_hmem", has.ofi_hmem},
      {"rdma_device_nodes", has.rdma_device_nodes},
      {"acs_clear", has.acs_clear},
      {"iommu_passthrough", has.iommu_passthrough},
      {"in_vm", has.in_vm},
      {"in_container", has.in_container}};
  lines.Add(0, "capabilities");
  for (const auto& [name, value] : kAll) {
    std::string line = absl::StrFormat("%-18s %-8s", name, Name(value));
    const auto why = has.why.find(name);
    if (why != has.why.end() && !why->second.empty()) {
      absl::StrAppend(&line, Shown(why->second.front()));
    }
    lines.Add(1, line);
    if (why == has.why.end() || why->second.empty()) continue;
    lines.Why(3, {why->second.begin() + 1, why->second.end()});
  }
  const auto add = [&lines](const char* name, const auto& known,
                            const std::string& shown) {
    lines.Add(1, absl::StrFormat("%-18s %s", name, shown));
    lines.Why(3, known.why);
  };
  const auto limit = [](const Known<uint64_t>& known) {
    return known.value_or(0) == UINT64_MAX ? std::string("no limit")
                                           : Number(known, " bytes");
  };
  add("memlock", has.memlock_bytes, limit(has.memlock_bytes));
  add("CPUs' time", has.cpu_limit, Number(has.cpu_limit, " CPUs"));
  add("memory", has.memory_limit_bytes, limit(has.memory_limit_bytes));
  add("/dev/shm", has.shm_bytes, Number(has.shm_bytes, " bytes"));
  const auto version = [](const std::string& text) {
    return text.empty() ? std::string("not asked or not there") : text;
  };
  lines.Add(1, absl::StrFormat("%-18s %s", "UCX", version(has.ucx_version)));
  lines.Add(1,
            absl::StrFormat("%-18s %s", "libfabric", version(has.ofi_version)));
}

}  // namespace

std::string ShowText(const Machine& machine, bool why) {
  Lines lines(why);
  lines.Add(
      0, absl::StrCat(machine.host.empty() ? "a machine" : machine.host, " (",
                      machine.source, ")  ", machine.arch, "  ", machine.cpus,
                      " CPUs  ", machine.numa_nodes, " NUMA nodes"));
  AddTree(machine, lines);
  AddMatrix(machine, why, lines);
  lines.Add(0, "interfaces");
  for (const NetInterface& each : machine.interfaces) {
    lines.Add(
        1, absl::StrCat(
               each.name, "  ", Name(each.kind), "  ",
               each.up.known() ? (*each.up.value ? "up" : "down") : "?",
               "  MTU ", Number(each.mtu, ""), "  ", Number(each.gbps, " Gb/s"),
               each.lower.empty() ? "" : "  over ",
               absl::StrJoin(each.lower, ", ")));
    lines.Why(3, each.gbps.why);
  }
  AddCapabilities(machine.capabilities, lines);
  for (const Evidence& note : machine.notes) {
    lines.Add(0, "note: " + Shown(note));
  }
  return lines.text();
}

}  // namespace telegrad::topo
