#include "topology/detect/infiniband.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "topology/detect/fabric.h"
#include "topology/detect/gid.h"
#include "topology/detect/net.h"

namespace telegrad::detect {
namespace {

constexpr int kMaxPorts = 64;

LinkLayer LayerOf(const Line& line) {
  if (line.text == "InfiniBand") return LinkLayer::kInfiniBand;
  return line.text == "Ethernet" ? LinkLayer::kEthernet : LinkLayer::kUnknown;
}

// The interface of a port of a device that has no GID's: by dev_port.
std::string InterfaceOf(const SysRoot& root, const Nic& nic, int port) {
  for (const std::string& name : nic.net_interfaces) {
    const Known<int> number =
        ReadKnown<int>(root, absl::StrCat("/sys/class/net/", name, "/dev_port"),
                       "dev_port", 0, kMaxPorts);
    if (number.known() && *number.value == port - 1) return name;
  }
  return nic.net_interfaces.empty() ? "" : nic.net_interfaces.front();
}

void ChooseGid(const Machine& machine, const TopologyOptions& options,
               const Nic& nic, Port& port) {
  const std::string name = absl::StrCat(nic.name, "/", port.number);
  if (IsRoce(port)) {
    return ChooseRoceGid(machine, options, name, port);
  }
  if (port.fabric != Fabric::kInfiniBand) return;
  // Any row addresses the port, its subnet prefix is fe80:: by default.
  if (port.gids.empty()) return;
  port.chosen_gid.value = port.gids.front().index;
  port.chosen_gid.why.push_back({.what = name + ": first row that is not empty",
                                 .source = "gids of the port",
                                 .raw = ToText(port.gids.front().raw),
                                 .confidence = Confidence::kInferred});
}

Port ReadPort(const SysRoot& root, const std::string& folder, int number,
              const TopologyOptions& options, const Machine& machine,
              const Nic& nic) {
  Port port;
  port.number = number;
  const Line layer = ReadLine(root, folder + "/link_layer");
  port.link_layer = LayerOf(layer);
  port.state = ReadKnown<int>(root, folder + "/state", "state", 0, 5);
  port.physical_state =
      ReadKnown<int>(root, folder + "/phys_state", "physical state", 0, 7);
  port.lid = ReadKnown<uint32_t>(root, folder + "/lid", "LID", 0, UINT32_MAX);
  const Line rate = ReadLine(root, folder + "/rate");
  const PortRate parsed = ParsePortRate(rate.text);
  port.gbps.why = {rate.Why("rate")};
  port.lanes.why = {rate.Why("rate")};
  if (parsed.gbps > 0) port.gbps.value = parsed.gbps;
  if (parsed.lanes > 0) port.lanes.value = parsed.lanes;
  ReadGids(root, folder, port);
  port.chosen_gid.why = {layer.Why("link layer")};
  ClassifyFabric(nic, port);
  if (port.link_layer != LinkLayer::kEthernet) {
    for (Gid& gid : port.gids) gid.type = GidType::kInfiniBand;
  }
  ChooseGid(machine, options, nic, port);
  if (port.net_interface.empty()) {
    port.net_interface = InterfaceOf(root, nic, number);
  }
  if (port.net_interface.empty() && !port.gids.empty()) {
    port.net_interface = port.gids.front().net_interface;
  }
  FillRoceMtu(machine, port);
  return port;
}

// /dev/infiniband/uverbsN, without which no program opens the device.
Tri DeviceNode(const SysRoot& root, const std::string& device) {
  const std::string nodes = "/dev/infiniband";
  const std::vector<std::string> verbs =
      root.List(device + "/infiniband_verbs");
  if (!verbs.empty() && root.Covers(nodes)) {
    return root.HasEntry(absl::StrCat(nodes, "/", verbs.front())) ? Tri::kYes
                                                                  : Tri::kNo;
  }
  return root.Covers(nodes) && !root.Exists(nodes) ? Tri::kNo : Tri::kUnknown;
}

// Equal for the functions of one card: its address without the function.
std::string CardOf(const SysRoot& root, const std::string& folder,
                   const Nic& nic) {
  if (nic.bdf.known()) {
    const std::string address = ToString(*nic.bdf.value);
    return address.substr(0, address.rfind('.'));
  }
  return Printable(ReadLine(root, folder + "/sys_image_guid").text);
}

Nic ReadNic(const SysRoot& root, const PciTree& pci,
            const TopologyOptions& options, const Machine& machine,
            const std::string& name) {
  const std::string folder = absl::StrCat("/sys/class/infiniband/", name);
  const std::string device = folder + "/device";
  Nic nic;
  nic.name = Printable(name);
  nic.is_rdma = true;
  // The class's own link goes through the device too.
  FillPci(root, pci, root.Exists(device) ? device : folder, nic);
  nic.driver = Printable(BaseName(root.RealPath(device + "/driver")));
  const Line hca = ReadLine(root, folder + "/hca_type");
  nic.board = Printable(hca.ok() ? hca.text
                                 : ReadLine(root, folder + "/board_id").text);
  nic.node_type =
      ReadKnown<int>(root, folder + "/node_type", "node type", 0, 255);
  nic.card = CardOf(root, folder, nic);
  nic.has_device_node = DeviceNode(root, device);
  for (const std::string& each : root.List(device + "/net")) {
    nic.net_interfaces.push_back(Printable(each));
  }
  for (const std::string& each : root.List(folder + "/ports")) {
    int number = 0;
    if (!absl::SimpleAtoi(each, &number) || number < 1 || number > kMaxPorts) {
      continue;
    }
    nic.ports.push_back(ReadPort(root, absl::StrCat(folder, "/ports/", each),
                                 number, options, machine, nic));
  }
  std::sort(nic.ports.begin(), nic.ports.end(),
            [](const Port& a, const Port& b) { return a.number < b.number; });
  return nic;
}

}  // namespace

PortRate ParsePortRate(absl::string_view text) {
  constexpr double kMaxGbps = 100000;
  const size_t space = text.find(' ');
  double value = 0;
  if (space == absl::string_view::npos ||
      !absl::SimpleAtod(text.substr(0, space), &value)) {
    return {};
  }
  absl::string_view rest = text.substr(space + 1);
  const bool has_unit = absl::StartsWithIgnoreCase(rest, "gb/sec") ||
                        absl::StartsWithIgnoreCase(rest, "mb/sec");
  if (!has_unit) return {};
  if (absl::ascii_tolower(static_cast<unsigned char>(rest[0])) == 'm') {
    value /= 1000;
  }
  if (!(value > 0) || value > kMaxGbps) return {};
  PortRate rate = {.gbps = value};
  const size_t bracket = rest.find('(');
  const size_t x = rest.find('X', bracket);
  int lanes = 0;
  if (bracket != absl::string_view::npos && x != absl::string_view::npos &&
      absl::SimpleAtoi(rest.substr(bracket + 1, x - bracket - 1), &lanes) &&
      lanes > 0 && lanes <= 64) {
    rate.lanes = lanes;
  }
  return rate;
}

int RoceMtu(int interface_mtu) {
  constexpr int kHeaders = 96;
  for (const int mtu : {4096, 2048, 1024, 512, 256}) {
    if (mtu <= interface_mtu - kHeaders) return mtu;
  }
  return 0;
}

void FillRoceMtu(const Machine& machine, Port& port) {
  if (port.link_layer != LinkLayer::kEthernet) return;
  const NetInterface* interface = FindInterface(machine, port.net_interface);
  if (interface == nullptr || !interface->mtu.known()) return;
  const int mtu = RoceMtu(*interface->mtu.value);
  port.active_mtu.why = interface->mtu.why;
  port.active_mtu.why.push_back(
      {.what = "largest InfiniBand MTU below the interface's less 96 bytes",
       .source = "rule iboe_get_mtu",
       .raw = absl::StrCat(interface->name, " mtu ", *interface->mtu.value),
       .confidence = Confidence::kInferred});
  if (mtu > 0) port.active_mtu.value = mtu;
}

void AddRdmaNics(const SysRoot& root, const PciTree& pci,
                 const TopologyOptions& options, Machine& machine) {
  for (const std::string& name : root.List("/sys/class/infiniband")) {
    const std::string folder = absl::StrCat("/sys/class/infiniband/", name);
    if (machine.nics.size() >= kMaxNics) break;
    if (!root.Exists(folder)) {
      if (machine.notes.size() >= kMaxInterfaces) continue;
      machine.notes.push_back({.what = "skipped: not readable",
                               .source = Printable(folder),
                               .raw = Printable(root.LinkText(folder))});
      continue;
    }
    machine.nics.push_back(ReadNic(root, pci, options, machine, name));
  }
}

}  // namespace telegrad::detect
