#include "topology/import/hwloc_xml.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "topology/import/hwloc_nvlink.h"
#include "topology/import/hwloc_ports.h"
#include "topology/import/pci.h"
#include "topology/path.h"

namespace telegrad::topology_import {
namespace {

constexpr char kSource[] = "hwloc XML";
// Numbers of osdev_type.
constexpr absl::string_view kNetwork = "2";
constexpr absl::string_view kOpenFabrics = "3";

// "0302 [10de:1db8] [10de:131d] a1": class, device, subsystem, revision.
PciIds ParsePciType(absl::string_view text) {
  PciIds ids;
  if (text.size() < 28) return ids;
  if (const auto device_class = ParseHex(text.substr(0, 4))) {
    ids.device_class = *device_class << 8;
  }
  ids.vendor = ParseHex(text.substr(6, 4));
  ids.device = ParseHex(text.substr(11, 4));
  ids.subsystem_vendor = ParseHex(text.substr(18, 4));
  ids.subsystem_device = ParseHex(text.substr(23, 4));
  return ids;
}

// The only bit of "0x00000001,0x0"; -1 for none, several or an endless set.
int OnlyBit(absl::string_view mask) {
  if (mask.empty() || absl::StartsWith(mask, "0xf...f")) return -1;
  const std::vector<absl::string_view> words = absl::StrSplit(mask, ',');
  int bit = -1;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t word = ParseHex(words[i]).value_or(0);
    if (word == 0) continue;
    if (bit >= 0 || (word & (word - 1)) != 0) return -1;
    const size_t base = 32 * (words.size() - 1 - i);
    if (base > 65536) return -1;
    bit = static_cast<int>(base) + __builtin_ctz(word);
  }
  return bit;
}

// "pci0000:2b" of "0000:[2b-3b]", as sysfs calls a host bridge.
std::string HostBridge(absl::string_view bridge_pci) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(bridge_pci, absl::ByAnyChar(":[-]"));
  if (parts.size() < 3) return std::string(bridge_pci);
  return absl::StrCat("pci", parts[0], ":", parts[2]);
}

// What lies above an object.
struct Place {
  PciPosition position;         // without switches
  std::vector<Switch> bridges;  // from the root port downwards
};

// Two ports, downstream and upstream, make a switch, which the upstream one
// names; the port that is left over is the root port.
std::vector<std::string> SwitchesOf(const std::vector<Switch>& bridges) {
  std::vector<Switch> switches;
  for (size_t i = bridges.size(); i >= 2; i -= 2) {
    switches.push_back(bridges[i - 2]);
  }
  return FoldedIds(switches);
}

class Importer {
 public:
  absl::StatusOr<Machine> Import(const XmlElement& root) {
    for (const XmlElement& child : root.children) {
      if (child.name != "object") continue;
      machine_.host = std::string(Info(child, "HostName"));
      machine_.arch = std::string(Info(child, "Architecture"));
      Place place;
      Walk(child, place);
    }
    AddNvlinks(root, gp_, machine_);
    RETURN_IF_ERROR(SortDevices(machine_));
    FillPaths(machine_);
    return std::move(machine_);
  }

 private:
  // Depth is bounded by the parser's.
  void Walk(const XmlElement& object, const Place& above) {
    const absl::string_view type = object.Attribute("type");
    if (type == "PU") ++machine_.cpus;
    if (type == "NUMANode" || type == "Node") ++machine_.numa_nodes;
    if (type == "PCIDev") return AddPciDevice(object, above);
    Place place = above;
    if (const auto nodes = object.Attribute("nodeset"); !nodes.empty()) {
      place.position.numa_node = OnlyBit(nodes);
    }
    if (type == "Package" || type == "Socket") {
      place.position.package = num_packages_++;
    }
    if (type == "Bridge") EnterBridge(object, place);
    if (type == "OSDev") AddLooseDevice(object, above);
    for (const XmlElement& child : object.children) {
      if (child.name == "object") Walk(child, place);
    }
  }

  static void EnterBridge(const XmlElement& bridge, Place& place) {
    if (absl::StartsWith(bridge.Attribute("bridge_type"), "0-")) {
      place.position.host_bridge = HostBridge(bridge.Attribute("bridge_pci"));
      place.bridges.clear();
      return;
    }
    place.bridges.push_back({std::string(bridge.Attribute("pci_busid")),
                             ParsePciType(bridge.Attribute("pci_type"))});
  }

  void AddPciDevice(const XmlElement& object, const Place& place) {
    const PciIds ids = ParsePciType(object.Attribute("pci_type"));
    Bdf bdf;
    if (!ParseBdf(object.Attribute("pci_busid"), &bdf)) {
      return Skip("a PCI device", object.Attribute("pci_busid"));
    }
    PciPosition position = place.position;
    position.switches = SwitchesOf(place.bridges);
    GpObject gp = {.name = ToString(bdf)};
    if (IsGpu(object, ids)) {
      if (!gpus_.insert(bdf).second) return Skip("a GPU", gp.name);
      gp.gpu = static_cast<int>(machine_.gpus.size());
      AddGpu(object, bdf, position);
    } else {
      AddNics(object, ids, bdf, position);
    }
    Remember(object, gp);
    for (const XmlElement& child : object.children) Remember(child, gp);
  }

  void Remember(const XmlElement& object, const GpObject& gp) {
    const absl::string_view index = object.Attribute("gp_index");
    if (!index.empty()) gp_.emplace(std::string(index), gp);
  }

  // Computing devices, or what the PCI class tells where hwloc was built
  // without the libraries that name them. A VGA of AMD computes where OpenCL
  // does on it.
  static bool IsGpu(const XmlElement& object, const PciIds& ids) {
    for (const XmlElement& child : object.children) {
      const absl::string_view name = child.Attribute("name");
      if (absl::StartsWith(name, "cuda") || absl::StartsWith(name, "nvml") ||
          absl::StartsWith(name, "rsmi")) {
        return child.Attribute("type") == "OSDev";
      }
    }
    const uint32_t device_class = ids.device_class.value_or(0);
    const uint32_t vendor = ids.vendor.value_or(0);
    if (IsGpuFunction(device_class, vendor)) return true;
    return vendor == 0x1002 && device_class >> 8 == 0x0300 &&
           absl::c_any_of(object.children, [](const XmlElement& child) {
             return absl::StartsWith(child.Attribute("name"), "opencl");
           });
  }

  void AddGpu(const XmlElement& object, const Bdf& bdf,
              const PciPosition& position) {
    Gpu gpu = {.name = ToString(bdf), .bdf = bdf, .position = position};
    bool has_name = false;
    for (const XmlElement& child : object.children) {
      const absl::string_view name = child.Attribute("name");
      const bool is_cuda = absl::StartsWith(name, "cuda");
      if (is_cuda || (!has_name && (absl::StartsWith(name, "nvml") ||
                                    absl::StartsWith(name, "rsmi")))) {
        gpu.name = std::string(name);
        has_name = true;
      }
      if (const auto model = Info(child, "GPUModel"); !model.empty()) {
        gpu.model = std::string(model);
      }
      if (const auto uuid = Info(child, "NVIDIAUUID"); !uuid.empty()) {
        gpu.uuid = std::string(uuid);
      }
    }
    machine_.gpus.push_back(std::move(gpu));
  }

  void AddNics(const XmlElement& object, const PciIds& ids, const Bdf& bdf,
               const PciPosition& position) {
    Nic card;
    SetIds(ids, bdf, card);
    card.position = position;
    double gbytes = 0;
    if (absl::SimpleAtod(object.Attribute("pci_link_speed"), &gbytes) &&
        gbytes > 0 && gbytes < 1e6) {
      card.pcie_now_gbps.value = gbytes * 8;
    }
    for (const XmlElement& child : object.children) {
      if (child.Attribute("osdev_type") == kNetwork) {
        AddInterface(child, position, NetInterface::Kind::kPhysical);
        card.net_interfaces.emplace_back(child.Attribute("name"));
      }
    }
    bool is_rdma = false;
    for (const XmlElement& child : object.children) {
      if (child.Attribute("osdev_type") != kOpenFabrics) continue;
      is_rdma = true;
      Nic nic = card;
      FillFromOpenFabrics(child, ids, nic);
      if (nic.net_interfaces.size() == 1 && nic.ports.size() == 1) {
        nic.ports[0].net_interface = nic.net_interfaces[0];
      }
      AddNic(std::move(nic));
    }
    if (is_rdma) return;
    for (const std::string& name : card.net_interfaces) {
      AddNic(EthernetNic(card, name));
    }
  }

  static Nic EthernetNic(const Nic& card, const std::string& name) {
    Nic nic = card;
    nic.name = name;
    nic.net_interfaces = {name};
    nic.ports = {{.link_layer = LinkLayer::kEthernet,
                  .fabric = Fabric::kEthernet,
                  .net_interface = name}};
    return nic;
  }

  // A device without a PCI function, as some virtual machines have.
  void AddLooseDevice(const XmlElement& object, const Place& place) {
    if (object.Attribute("osdev_type") != kNetwork) return;
    if (!IsCardName(object.Attribute("name"))) {
      return Skip("an interface that is no card", object.Attribute("name"));
    }
    AddInterface(object, place.position, NetInterface::Kind::kVirtualDevice);
    Nic card;
    card.position = place.position;
    AddNic(EthernetNic(card, std::string(object.Attribute("name"))));
  }

  void AddInterface(const XmlElement& object, const PciPosition& position,
                    NetInterface::Kind kind) {
    if (machine_.interfaces.size() >= kMaxNics) return;
    NetInterface interface = {.name = std::string(object.Attribute("name")),
                              .kind = kind};
    // The hardware address of IP over InfiniBand has 20 bytes.
    if (Info(object, "Address").size() == 59) {
      interface.kind = NetInterface::Kind::kIpoib;
    }
    if (position.numa_node >= 0) {
      interface.numa_node.value = position.numa_node;
    }
    machine_.interfaces.push_back(std::move(interface));
  }

  void AddNic(Nic nic) {
    if (machine_.nics.size() > kMaxNics) return;  // refused when sorted
    machine_.nics.push_back(std::move(nic));
  }

  void Skip(absl::string_view what, absl::string_view raw) {
    if (machine_.notes.size() < kMaxNotes) {
      machine_.notes.push_back(
          Note(absl::StrCat("skipped ", what), kSource, raw));
    }
  }

  Machine machine_;
  int num_packages_ = 0;
  std::set<Bdf> gpus_;
  GpObjects gp_;
};

}  // namespace

absl::StatusOr<Machine> MachineFromHwlocXml(const XmlElement& root) {
  const absl::string_view version = root.Attribute("version");
  if (!version.empty() && !absl::StartsWith(version, "1.") &&
      !absl::StartsWith(version, "2.")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hwloc XML ", version,
        " not readable: export it with lstopo of hwloc 2, or with --export-xml-"
        "flags v2 of hwloc 3"));
  }
  return Importer().Import(root);
}

}  // namespace telegrad::topology_import
