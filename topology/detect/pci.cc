#include "topology/detect/pci.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace telegrad::detect {
namespace {

enum class PortType { kUnknown, kRoot, kUpstream, kDownstream };

uint32_t HexFile(const SysRoot& root, const std::string& path) {
  return ReadKnown<uint32_t>(root, path, "id", 0, UINT32_MAX).value_or(0);
}

// By the PCI Express capability (PCI Express Base 7.5.3.2), behind the first 64
// bytes, which root alone may read.
PortType PortTypeOf(const SysRoot& root, const std::string& folder) {
  constexpr size_t kSpace = 256;
  constexpr int kMaxCapabilities = 48;
  constexpr uint8_t kExpress = 0x10;
  const std::string space = root.Read(folder + "/config", kSpace).text;
  const auto byte = [&](size_t at) {
    return at < space.size() ? static_cast<uint8_t>(space[at]) : uint8_t{0};
  };
  size_t at = byte(0x34) & 0xfcU;
  for (int i = 0; at >= 0x40 && i < kMaxCapabilities; ++i) {
    if (byte(at) != kExpress) {
      at = byte(at + 1) & 0xfcU;
      continue;
    }
    const int type = byte(at + 2) >> 4;
    if (type == 4) return PortType::kRoot;
    if (type == 5) return PortType::kUpstream;
    return type == 6 ? PortType::kDownstream : PortType::kUnknown;
  }
  return PortType::kUnknown;
}

// Generation of a Broadcom (PLX) switch that shows two levels for one chip; 0:
// none. Source: NCCL's getBcmGen in src/graph/topo.cc.
int BroadcomGeneration(const SysRoot& root, const std::string& folder,
                       uint32_t level) {
  constexpr uint32_t kBroadcom = 0x1000;
  if (HexFile(root, folder + "/vendor") != kBroadcom) return 0;
  const uint32_t device = HexFile(root, folder + "/device");
  const uint32_t sub_vendor = HexFile(root, folder + "/subsystem_vendor");
  const uint32_t sub_device = HexFile(root, folder + "/subsystem_device");
  if (sub_vendor != kBroadcom) return 0;
  if (device == 0xc010 && (sub_device & 0xf000U) == 0xa000) return 4;
  if (device == 0xc030 && (sub_device & 0xf000U) == level << 12U) return 5;
  return 0;
}

// Folders of the PCI functions of a real path, farthest first, below the last
// host bridge (VMD has one below another).
struct Chain {
  std::string host_bridge = {};
  std::vector<std::string> folders = {};
};

Chain ChainOf(const std::string& real) {
  Chain chain;
  std::string folder;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(real, '/', absl::SkipEmpty());
  for (const absl::string_view part : parts) {
    absl::StrAppend(&folder, "/", part);
    Bdf bdf;
    if (ParseBdf(part, &bdf)) {
      chain.folders.push_back(folder);
    } else if (absl::StartsWith(part, "pci") &&
               part.find(':') != absl::string_view::npos) {
      chain = {.host_bridge = Printable(part)};
    }
  }
  return chain;
}

}  // namespace

double PcieGbps(absl::string_view speed, int64_t width) {
  constexpr double kMaxRate = 1000;
  constexpr int64_t kMaxWidth = 64;
  const absl::string_view number = speed.substr(0, speed.find(' '));
  double rate = 0;
  if (!absl::SimpleAtod(number, &rate) || !(rate > 0) || rate > kMaxRate ||
      width <= 0 || width > kMaxWidth) {
    return 0;
  }
  double code = 1;  // PCIe 6 has none
  if (rate < 64) code = 128.0 / 130;
  if (rate < 8) code = 0.8;
  return rate * code * static_cast<double>(width);
}

PciTree::PciTree(const SysRoot& root) : root_(root) {
  constexpr int kMax = 65535;
  const std::string folder = "/sys/devices/system/node";
  for (const std::string& name : root.List(folder)) {
    if (!absl::StartsWith(name, "node")) continue;
    const std::optional<int64_t> node = LeadingInt(name.substr(4));
    if (!node.has_value() || *node < 0 || *node > kMax) continue;
    const std::vector<int> cpus = ParseCpuList(
        ReadLine(root, absl::StrCat(folder, "/", name, "/cpulist")).text);
    if (cpus.empty()) continue;
    const Known<int> package =
        ReadKnown<int>(root,
                       absl::StrCat("/sys/devices/system/cpu/cpu", cpus.front(),
                                    "/topology/physical_package_id"),
                       "package", 0, kMax);
    if (package.known()) {
      package_of_node_[static_cast<int>(*node)] = *package.value;
    }
  }
}

int PciTree::PackageOfNode(int numa_node) const {
  const auto found = package_of_node_.find(numa_node);
  if (found != package_of_node_.end()) return found->second;
  // One node alone has every device, also those that say -1.
  const bool is_only = numa_node < 0 && package_of_node_.size() == 1;
  return is_only ? package_of_node_.begin()->second : -1;
}

std::string PciTree::FolderOf(const std::string& path) const {
  const Chain chain = ChainOf(root_.RealPath(path));
  return chain.folders.empty() ? "" : chain.folders.back();
}

bool PciTree::BdfOf(const std::string& path, Bdf* bdf) const {
  const std::string folder = FolderOf(path);
  if (!folder.empty()) return ParseBdf(BaseName(folder), bdf);
  const Chain dangling = ChainOf(root_.LinkText(path));
  return !dangling.folders.empty() &&
         ParseBdf(BaseName(dangling.folders.back()), bdf);
}

std::vector<std::string> PciTree::BridgesAbove(const std::string& path) const {
  constexpr size_t kMaxBridges = 64;
  const Chain chain = ChainOf(root_.RealPath(path));
  if (chain.folders.empty()) return {};
  std::vector<std::string> bridges(chain.folders.rbegin() + 1,
                                   chain.folders.rend());
  if (bridges.size() > kMaxBridges) bridges.resize(kMaxBridges);
  return bridges;
}

std::vector<std::string> PciTree::Switches(
    const std::vector<std::string>& bridges) const {
  std::vector<std::string> upstream;
  bool all_known = true;
  for (const std::string& bridge : bridges) {
    const PortType type = PortTypeOf(root_, bridge);
    all_known = all_known && type != PortType::kUnknown;
    if (type == PortType::kUpstream) upstream.push_back(bridge);
  }
  if (all_known) return upstream;
  // Two bridges are one switch, one left over is the root port.
  upstream.clear();
  for (size_t i = 1; i < bridges.size(); i += 2) upstream.push_back(bridges[i]);
  return upstream;
}

std::vector<std::string> PciTree::Fold(
    std::vector<std::string> switches) const {
  for (size_t i = 0; i + 1 < switches.size();) {
    const int inner = BroadcomGeneration(root_, switches[i], 1);
    const bool is_one_chip =
        inner != 0 && inner == BroadcomGeneration(root_, switches[i + 1], 0);
    if (is_one_chip) {
      switches.erase(switches.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return switches;
}

PciPosition PciTree::PositionOf(const std::string& path) const {
  PciPosition position;
  const Chain chain = ChainOf(root_.RealPath(path));
  position.host_bridge = chain.host_bridge;
  if (chain.folders.empty()) return position;
  for (const std::string& each : Fold(Switches(BridgesAbove(path)))) {
    position.switches.push_back(BaseName(each));
  }
  position.numa_node =
      ReadKnown<int>(root_, chain.folders.back() + "/numa_node", "NUMA node", 0,
                     65535)
          .value_or(-1);
  position.package = PackageOfNode(position.numa_node);
  return position;
}

Known<double> PciTree::LinkGbps(const std::string& path,
                                const char* which) const {
  Known<double> known;
  std::vector<std::string> folders = {FolderOf(path)};
  if (folders.front().empty()) return known;
  const std::vector<std::string> bridges = BridgesAbove(path);
  if (!bridges.empty()) folders.push_back(bridges.front());
  for (const std::string& folder : folders) {
    const Line speed =
        ReadLine(root_, absl::StrCat(folder, "/", which, "_link_speed"));
    const Line width =
        ReadLine(root_, absl::StrCat(folder, "/", which, "_link_width"));
    const double gbps =
        PcieGbps(speed.text, LeadingInt(width.text).value_or(0));
    known.why.push_back(speed.Why("PCIe speed"));
    known.why.push_back(width.Why("PCIe width"));
    // The narrower end decides; a port that says nothing does not.
    if (gbps > 0) known.value = std::min(known.value.value_or(gbps), gbps);
  }
  return known;
}

}  // namespace telegrad::detect
