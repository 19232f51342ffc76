#include "topology/detect/net.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace telegrad::detect {
namespace {

using Kind = NetInterface::Kind;

constexpr int kTypeEthernet = 1;  // linux/if_arp.h
constexpr int kTypeInfiniBand = 32;
constexpr int kTypeLoopback = 772;

// DEVTYPE of uevent; empty for most.
std::string DeviceType(const SysRoot& root, const std::string& folder) {
  const Line uevent = ReadLine(root, folder + "/uevent");
  for (const absl::string_view line : absl::StrSplit(uevent.text, '\n')) {
    if (absl::StartsWith(line, "DEVTYPE=")) {
      return std::string(absl::StripAsciiWhitespace(line.substr(8)));
    }
  }
  return "";
}

// A guest's card: its device is on virtio, VMBus, Xen's or a platform's bus.
bool IsOfGuest(const SysRoot& root, const std::string& folder) {
  const std::string real = root.RealPath(folder + "/device");
  const std::string name = BaseName(real);
  return absl::StartsWith(name, "virtio") || absl::StartsWith(name, "vif-") ||
         absl::StrContains(absl::AsciiStrToLower(real), "vmbus");
}

Kind KindOf(const SysRoot& root, const std::string& folder, int type) {
  const std::string device_type = DeviceType(root, folder);
  if (type == kTypeLoopback) return Kind::kLoopback;
  if (device_type == "bridge" || root.Exists(folder + "/bridge")) {
    return Kind::kBridge;
  }
  if (device_type == "bond" || root.Exists(folder + "/bonding")) {
    return Kind::kBond;
  }
  if (device_type == "vlan") return Kind::kVlan;
  if (device_type == "vxlan" || device_type == "geneve") return Kind::kVxlan;
  if (type == kTypeInfiniBand) return Kind::kIpoib;
  if (root.Exists(folder + "/tun_flags")) return Kind::kTunnel;
  if (type != kTypeEthernet) return Kind::kTunnel;
  if (root.HasEntry(folder + "/device")) {
    if (!device_type.empty()) return Kind::kOther;  // wlan, wwan
    return IsOfGuest(root, folder) ? Kind::kVirtualDevice : Kind::kPhysical;
  }
  // A pair's other end is in another name space, or has another index.
  const Line index = ReadLine(root, folder + "/ifindex");
  const Line link = ReadLine(root, folder + "/iflink");
  const bool is_pair = index.ok() && link.ok() && index.text != link.text;
  return is_pair || absl::StartsWith(BaseName(folder), "veth") ? Kind::kVeth
                                                               : Kind::kOther;
}

Known<double> SpeedOf(const SysRoot& root, const std::string& folder) {
  constexpr int64_t kMaxMbps = 100'000'000;
  const Known<int64_t> mbps = ReadKnown<int64_t>(
      root, folder + "/speed", "speed in Mb/s (-1: unknown)", 1, kMaxMbps);
  Known<double> gbps = {.why = mbps.why};
  if (mbps.known()) gbps.value = static_cast<double>(*mbps.value) / 1000;
  return gbps;
}

Known<bool> IsUp(const SysRoot& root, const std::string& folder) {
  const Line state = ReadLine(root, folder + "/operstate");
  Known<bool> up = {.why = {state.Why("operstate")}};
  if (state.text == "up" || state.text == "down") up.value = state.text == "up";
  if (up.known() || state.text != "unknown") return up;
  const Line flags = ReadLine(root, folder + "/flags");
  const std::optional<int64_t> bits = LeadingInt(flags.text);
  up.why.push_back(flags.Why("flags"));
  if (bits.has_value()) up.value = (*bits & 1) != 0;  // IFF_UP
  return up;
}

std::vector<std::string> LowerOf(const SysRoot& root,
                                 const std::string& folder) {
  std::set<std::string> names;
  for (const std::string& name : root.List(folder)) {
    if (absl::StartsWith(name, "lower_"))
      names.insert(Printable(name.substr(6)));
  }
  const Line slaves = ReadLine(root, folder + "/bonding/slaves");
  for (const absl::string_view name :
       absl::StrSplit(slaves.text, ' ', absl::SkipEmpty())) {
    names.insert(Printable(name));
  }
  for (const std::string& name : root.List(folder + "/brif")) {
    names.insert(Printable(name));
  }
  return {names.begin(), names.end()};
}

// Whether RoCE congestion control is on, by priority.
std::map<int, bool> EnabledPriorities(const SysRoot& root,
                                      const std::string& folder) {
  std::map<int, bool> enabled;
  for (const std::string& name : root.List(folder)) {
    const std::optional<int64_t> priority = LeadingInt(name);
    const Line line = ReadLine(root, absl::StrCat(folder, "/", name));
    if (priority.has_value() && *priority >= 0 && *priority < 8 && line.ok()) {
      enabled[static_cast<int>(*priority)] = line.text != "0";
    }
  }
  return enabled;
}

NetInterface ReadInterface(const SysRoot& root, const std::string& name) {
  constexpr int64_t kMaxMtu = 1 << 24;
  constexpr int kMaxType = 65535;
  const std::string folder = absl::StrCat("/sys/class/net/", name);
  const int type =
      ReadKnown<int>(root, folder + "/type", "type", 0, kMaxType).value_or(0);
  return {.name = Printable(name),
          .kind = KindOf(root, folder, type),
          .up = IsUp(root, folder),
          .mtu = ReadKnown<int>(root, folder + "/mtu", "mtu", 1, kMaxMtu),
          .gbps = SpeedOf(root, folder),
          .numa_node = ReadKnown<int>(root, folder + "/device/numa_node",
                                      "NUMA node (-1: none)", 0, 65535),
          .lower = LowerOf(root, folder),
          .ecn_np = EnabledPriorities(root, folder + "/ecn/roce_np/enable"),
          .ecn_rp = EnabledPriorities(root, folder + "/ecn/roce_rp/enable")};
}

Port EthernetPort(const NetInterface& interface) {
  Port port;
  port.link_layer = LinkLayer::kEthernet;
  port.fabric = Fabric::kEthernet;
  port.state.why = interface.up.why;
  if (interface.up.known()) port.state.value = *interface.up.value ? 4 : 1;
  port.gbps = interface.gbps;
  port.active_mtu = interface.mtu;
  port.net_interface = interface.name;
  return port;
}

// Interfaces that RDMA devices speak for, with those below them.
std::set<std::string> OfRdma(const Machine& machine) {
  std::set<std::string> names;
  for (const Nic& nic : machine.nics) {
    names.insert(nic.net_interfaces.begin(), nic.net_interfaces.end());
    for (const Port& port : nic.ports) {
      for (const Gid& gid : port.gids) names.insert(gid.net_interface);
    }
  }
  // A bond over a VLAN over a card, and no deeper.
  for (int depth = 0; depth < 3; ++depth) {
    for (const NetInterface& each : machine.interfaces) {
      if (names.count(each.name) > 0 && each.kind != Kind::kBridge) {
        names.insert(each.lower.begin(), each.lower.end());
      }
    }
  }
  return names;
}

}  // namespace

const NetInterface* FindInterface(const Machine& machine,
                                  const std::string& name) {
  const auto found =
      std::find_if(machine.interfaces.begin(), machine.interfaces.end(),
                   [&](const NetInterface& each) { return each.name == name; });
  return found == machine.interfaces.end() ? nullptr : &*found;
}

void AddInterfaces(const SysRoot& root, Machine& machine) {
  for (const std::string& name : root.List("/sys/class/net")) {
    const std::string folder = absl::StrCat("/sys/class/net/", name);
    if (!root.Exists(folder + "/type")) {
      // bonding_masters is a file of the driver.
      if (name == "bonding_masters" || machine.notes.size() >= kMaxInterfaces) {
        continue;
      }
      machine.notes.push_back({.what = "skipped: not readable",
                               .source = Printable(folder),
                               .raw = Printable(root.LinkText(folder))});
      continue;
    }
    if (machine.interfaces.size() >= kMaxInterfaces) break;
    machine.interfaces.push_back(ReadInterface(root, name));
  }
}

void FillPci(const SysRoot& root, const PciTree& pci, const std::string& path,
             Nic& nic) {
  Bdf bdf;
  if (pci.BdfOf(path, &bdf)) {
    nic.bdf = {.value = bdf,
               .why = {{.what = "PCI address",
                        .source = Printable(path),
                        .raw = ToString(bdf)}}};
  }
  const std::string folder = pci.FolderOf(path);
  const std::string ids = folder.empty() ? path : folder;
  nic.pci_class =
      ReadKnown<uint32_t>(root, ids + "/class", "PCI class", 1, 0xffffff);
  nic.vendor =
      ReadKnown<uint32_t>(root, ids + "/vendor", "PCI vendor", 1, 0xffff);
  nic.device =
      ReadKnown<uint32_t>(root, ids + "/device", "PCI device", 1, 0xffff);
  nic.pcie_gbps = pci.LinkGbps(path, "max");
  nic.pcie_now_gbps = pci.LinkGbps(path, "current");
  nic.position = pci.PositionOf(path);
}

void AddEthernetNics(const SysRoot& root, const PciTree& pci,
                     Machine& machine) {
  const std::set<std::string> taken = OfRdma(machine);
  std::set<Bdf> functions;
  for (const Nic& nic : machine.nics) {
    if (nic.bdf.known()) functions.insert(*nic.bdf.value);
  }
  for (const NetInterface& each : machine.interfaces) {
    const bool is_card =
        each.kind == Kind::kPhysical || each.kind == Kind::kVirtualDevice;
    if (!is_card || taken.count(each.name) > 0) continue;
    if (machine.nics.size() >= kMaxNics) break;
    const std::string path =
        absl::StrCat("/sys/class/net/", each.name, "/device");
    Nic nic;
    nic.name = each.name;
    nic.net_interfaces.push_back(each.name);
    nic.ports.push_back(EthernetPort(each));
    FillPci(root, pci, path, nic);
    if (nic.bdf.known() && functions.count(*nic.bdf.value) > 0) continue;
    nic.driver = BaseName(root.RealPath(path + "/driver"));
    if (nic.bdf.known()) {
      const std::string address = ToString(*nic.bdf.value);
      nic.card = address.substr(0, address.rfind('.'));
    }
    if (nic.position.numa_node < 0) {
      nic.position.numa_node = each.numa_node.value_or(-1);
    }
    machine.nics.push_back(std::move(nic));
  }
}

}  // namespace telegrad::detect
