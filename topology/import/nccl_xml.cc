#include "topology/import/nccl_xml.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "topology/import/pci.h"
#include "topology/path.h"

namespace telegrad::topology_import {
namespace {

constexpr char kSource[] = "NCCL XML";

// GB/s of one lane of NVLink in one direction; 0: unknown.
double NvlinkGbytesPerSecond(int compute_capability) {
  if (compute_capability >= 100) return 50;
  if (compute_capability >= 70) return 25;
  return compute_capability == 60 ? 20 : 0;
}

// Gigabits/s of "16.0 GT/s PCIe" on `width` lanes; nothing for "" or 0.
std::optional<double> PcieGbps(absl::string_view speed,
                               absl::string_view width) {
  const size_t end = speed.find(' ');
  double transfers = 0;
  const auto lanes = ParseInt(width);
  const bool is_known = absl::SimpleAtod(speed.substr(0, end), &transfers) &&
                        transfers > 0 && transfers <= 1024 && lanes &&
                        *lanes > 0 && *lanes <= 32;
  if (!is_known) return std::nullopt;
  const double coding = transfers <= 5 ? 8.0 / 10 : 128.0 / 130;
  return transfers * coding * *lanes;
}

PciIds IdsOf(const XmlElement& pci) {
  return {.device_class = ParseHex(pci.Attribute("class")),
          .vendor = ParseHex(pci.Attribute("vendor")),
          .device = ParseHex(pci.Attribute("device")),
          .subsystem_vendor = ParseHex(pci.Attribute("subsystem_vendor")),
          .subsystem_device = ParseHex(pci.Attribute("subsystem_device"))};
}

const XmlElement* Child(const XmlElement& element, absl::string_view name) {
  for (const XmlElement& child : element.children) {
    if (child.name == name) return &child;
  }
  return nullptr;
}

bool IsOfClass(const PciIds& ids, uint32_t base_class) {
  return ids.device_class && *ids.device_class >> 16 == base_class;
}

// By its class alone where the file has no vendor.
bool IsGpu(const PciIds& ids) {
  return ids.vendor.has_value()
             ? IsGpuFunction(ids.device_class.value_or(0), *ids.vendor)
             : IsOfClass(ids, 0x03);
}

// RCCL's `sm` counts compute units; what NCCL says by it stands in `gcn`.
bool IsAmd(const XmlElement& gpu) { return !gpu.Attribute("gcn").empty(); }

// Processors of "00000000,0000ffff".
int CountBits(absl::string_view mask) {
  int count = 0;
  for (const char c : mask) {
    const auto nibble = ParseHex(absl::string_view(&c, 1));
    if (nibble) count += static_cast<int>(std::bitset<4>(*nibble).count());
  }
  return count;
}

class Importer {
 public:
  absl::StatusOr<Machine> Import(const XmlElement& root) {
    std::set<absl::string_view> nodes;
    int index = 0;
    for (const XmlElement& cpu : root.children) {
      if (cpu.name != "cpu") continue;
      if (machine_.arch.empty()) {
        machine_.arch = std::string(cpu.Attribute("arch"));
      }
      machine_.cpus += CountBits(cpu.Attribute("affinity"));
      nodes.insert(cpu.Attribute("numaid"));
      AddCpu(cpu, index++);
    }
    machine_.numa_nodes = static_cast<int>(nodes.size());
    AddLooseNets(root);
    for (const auto& [gpu, links] : nvlinks_) AddLinks(gpu, *links);
    SetGdr();
    RETURN_IF_ERROR(SortDevices(machine_));
    FillPaths(machine_);
    return std::move(machine_);
  }

 private:
  void AddCpu(const XmlElement& cpu, int index) {
    PciPosition position;
    position.numa_node = ParseInt(cpu.Attribute("numaid")).value_or(-1);
    position.host_bridge = absl::StrCat("cpu", index);
    std::vector<Switch> above;
    for (const XmlElement& child : cpu.children) {
      if (child.name == "pci") AddPci(child, position, above);
      if (child.name == "nic") AddNets(child, {}, {}, position, {});
    }
    if (index == 0) first_cpu_ = position;
  }

  // Depth is bounded by the parser's.
  void AddPci(const XmlElement& pci, PciPosition& position,
              std::vector<Switch>& above) {
    const PciIds ids = IdsOf(pci);
    const XmlElement* gpu = Child(pci, "gpu");
    const XmlElement* nic = Child(pci, "nic");
    if (gpu != nullptr || nic != nullptr || IsGpu(ids) ||
        IsOfClass(ids, 0x02)) {
      AddEndpoint(pci, ids, PositionBelow(position, above), gpu, nic);
    }
    if (Child(pci, "pci") == nullptr) return;
    const absl::string_view id = pci.Attribute("busid");
    above.push_back({id.empty() ? absl::StrCat("unnamed ", ++num_unnamed_)
                                : std::string(id),
                     ids});
    for (const XmlElement& child : pci.children) {
      if (child.name == "pci") AddPci(child, position, above);
    }
    above.pop_back();
  }

  static PciPosition PositionBelow(const PciPosition& cpu,
                                   const std::vector<Switch>& above) {
    PciPosition position = cpu;
    position.switches = FoldedIds({above.rbegin(), above.rend()});
    return position;
  }

  void AddEndpoint(const XmlElement& pci, const PciIds& ids,
                   PciPosition position, const XmlElement* gpu,
                   const XmlElement* nic) {
    Bdf bdf;
    const bool has_bdf = ParseBdf(pci.Attribute("busid"), &bdf);
    if (gpu != nullptr || IsGpu(ids)) {
      if (has_bdf && gpus_.emplace(bdf, machine_.gpus.size()).second) {
        AddGpu(bdf, gpu, std::move(position));
      } else {
        Skip("a GPU", pci.Attribute("busid"));
      }
      return;
    }
    static const XmlElement kNoNets;
    const auto gbps =
        PcieGbps(pci.Attribute("link_speed"), pci.Attribute("link_width"));
    AddNets(nic == nullptr ? kNoNets : *nic, ids,
            has_bdf ? std::optional(bdf) : std::nullopt, position, gbps);
  }

  void AddGpu(const Bdf& bdf, const XmlElement* element, PciPosition position) {
    Gpu gpu = {.name = ToString(bdf), .bdf = bdf};
    gpu.position = std::move(position);
    if (element != nullptr) {
      if (const auto dev = ParseInt(element->Attribute("dev"))) {
        gpu.name = absl::StrCat(IsAmd(*element) ? "rocm" : "nvml", *dev);
      }
      if (!IsAmd(*element)) {
        gpu.compute_capability.value = ParseInt(element->Attribute("sm"));
      }
      nvlinks_.emplace_back(static_cast<int>(machine_.gpus.size()), element);
    }
    machine_.gpus.push_back(std::move(gpu));
  }

  // One NIC for each name: NCCL gives ports of a card names of their own.
  void AddNets(const XmlElement& nic, const PciIds& ids,
               const std::optional<Bdf>& bdf, const PciPosition& position,
               std::optional<double> pcie_gbps) {
    const size_t first = machine_.nics.size();
    Nic card;
    SetIds(ids, bdf, card);
    card.pcie_gbps.value = pcie_gbps;
    card.position = position;
    for (const XmlElement& net : nic.children) {
      if (net.name == "net") AddNet(net, ids, card, first);
    }
    if (machine_.nics.size() > first || !bdf) return;
    card.name = ToString(*bdf);
    card.ports.push_back(PortOf(ids, card));
    machine_.nics.push_back(std::move(card));
  }

  void AddNet(const XmlElement& net, const PciIds& ids, const Nic& card,
              size_t first) {
    const absl::string_view name = net.Attribute("name");
    if (name.empty()) return Skip("a net", "without a name");
    const bool is_rdma = GuessFabric(ids, name).is_rdma;
    if (!card.bdf.known() && !ids.device_class && !is_rdma &&
        !IsCardName(name)) {
      return Skip("an interface that is no card", name);
    }
    if (machine_.nics.size() > kMaxNics) return;  // refused when sorted
    const auto same =
        std::find_if(machine_.nics.begin() + static_cast<ptrdiff_t>(first),
                     machine_.nics.end(),
                     [&](const Nic& each) { return each.name == name; });
    const bool is_new = same == machine_.nics.end();
    if (is_new) {
      machine_.nics.push_back(card);
      machine_.nics.back().name = std::string(name);
    }
    Nic& nic = is_new ? machine_.nics.back() : *same;
    if (nic.ports.size() >= kMaxPorts) return Skip("a port", name);
    Port port = PortOf(ids, nic);
    port.number = ParseInt(net.Attribute("port")).value_or(1);
    SetGbps(net.Attribute("speed"), is_rdma, port);
    port.state = {.value = 4,
                  .why = {Note("state", kSource, "NCCL lists active ports")}};
    const absl::string_view gdr = net.Attribute("gdr");
    if (nic.is_rdma && !gdr.empty()) (gdr == "0" ? no_gdr_ : says_gdr_) = true;
    if (!nic.is_rdma) {
      nic.net_interfaces = {nic.name};
      port.net_interface = nic.name;
    }
    nic.ports.push_back(std::move(port));
  }

  // For a socket whose rate is unknown NCCL writes 10000.
  static void SetGbps(absl::string_view speed, bool is_rdma, Port& port) {
    double mbps = 0;
    if (!absl::SimpleAtod(speed, &mbps) || mbps <= 0 || mbps >= 1e9) return;
    if (!is_rdma && mbps == 10000) {
      port.gbps.why = {Note("gbps", kSource, "10000 stands for unknown")};
      return;
    }
    port.gbps = {
        .value = mbps / 1000,
        .why = {
            {.what = "gbps", .source = kSource, .raw = std::string(speed)}}};
  }

  // A port of what the card speaks; marks the card.
  static Port PortOf(const PciIds& ids, Nic& nic) {
    const FabricGuess guess = GuessFabric(ids, nic.name);
    nic.is_rdma = guess.is_rdma;
    nic.pci_class.why = {Note(Name(guess.fabric), kSource, guess.why)};
    return {.link_layer = LayerOf(guess.fabric), .fabric = guess.fabric};
  }

  // NCCL hangs what has no place in the PCI tree below the first CPU.
  void AddLooseNets(const XmlElement& root) {
    for (const XmlElement& child : root.children) {
      if (child.name == "nic") AddNets(child, {}, {}, first_cpu_, {});
    }
  }

  void AddLinks(int gpu, const XmlElement& element) {
    for (const XmlElement& child : element.children) {
      const auto count = ParseInt(child.Attribute("count"));
      if (!count || *count <= 0 || *count > 1024) continue;
      if (machine_.links.size() >= kMaxLinks) return Skip("links", "too many");
      GpuLink link = {.a = gpu, .lanes = *count};
      if (child.name == "c2c") {
        link.b = GpuLink::kToCpu;
        double mbytes = 0;
        if (absl::SimpleAtod(child.Attribute("bw"), &mbytes) && mbytes > 0 &&
            mbytes < 1e9) {
          link.gbytes_per_s.value = mbytes * *count / 1000;
        }
        machine_.links.push_back(std::move(link));
      } else if (child.name == "nvlink" || child.name == "xgmi") {
        AddNvlink(child, std::move(link));
      }
    }
  }

  // Or a link of xGMI, whose rate nobody says.
  void AddNvlink(const XmlElement& nvlink, GpuLink link) {
    const absl::string_view target = nvlink.Attribute("target");
    const auto tclass = ParseHex(nvlink.Attribute("tclass"));
    const double each = NvlinkGbytesPerSecond(
        machine_.gpus[static_cast<size_t>(link.a)].compute_capability.value_or(
            0));
    if (each > 0) {
      link.gbytes_per_s = {
          .value = each * link.lanes,
          .why = {Note("gbytes_per_s", kSource, "lanes times the GPU's kind")}};
    }
    Bdf bdf;
    const auto other = ParseBdf(target, &bdf) ? gpus_.find(bdf) : gpus_.end();
    if (other != gpus_.end()) {
      link.b = static_cast<int>(other->second);
      // Each end lists the link; a virtual machine may show a GPU as its own
      // peer (Azure NCv4).
      if (link.b == link.a) return Skip("an NVLink to itself", target);
      if (link.b < link.a && HasLink(link.b, link.a)) return;
    } else if (tclass == 0x068001u) {
      link.b = GpuLink::kToCpu;  // a POWER9 processor
    } else {
      link.b_name = std::string(target);
    }
    machine_.links.push_back(std::move(link));
  }

  bool HasLink(int a, int b) const {
    return std::any_of(
        machine_.links.begin(), machine_.links.end(),
        [&](const GpuLink& each) { return each.a == a && each.b == b; });
  }

  // NCCL's flag is what files and libraries promise: good for "no" only.
  void SetGdr() {
    Capabilities& all = machine_.capabilities;
    if (!says_gdr_ && !no_gdr_) return;
    if (!says_gdr_) all.gdr = Tri::kNo;
    all.why["gdr"] = {Note("gdr", kSource,
                           says_gdr_ ? "gdr=\"1\" is a promise, not a probe"
                                     : "gdr=\"0\" for each RDMA device")};
  }

  void Skip(absl::string_view what, absl::string_view raw) {
    if (machine_.notes.size() < kMaxNotes) {
      machine_.notes.push_back(
          Note(absl::StrCat("skipped ", what), kSource, raw));
    }
  }

  Machine machine_;
  PciPosition first_cpu_;
  std::map<Bdf, size_t> gpus_;
  std::vector<std::pair<int, const XmlElement*>> nvlinks_;
  int num_unnamed_ = 0;
  bool says_gdr_ = false;
  bool no_gdr_ = false;
};

}  // namespace

absl::StatusOr<Machine> MachineFromNcclXml(const XmlElement& root) {
  const absl::string_view version = root.Attribute("version");
  if (version != "1" && version != "2") {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL XML: version \"", version,
                     "\" is not known; this reads \"1\" and \"2\""));
  }
  return Importer().Import(root);
}

}  // namespace telegrad::topology_import
