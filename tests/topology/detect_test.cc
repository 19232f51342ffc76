// Rules of detection on small trees in memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/topology/trees.h"
#include "topology/detect/infiniband.h"
#include "topology/detect/pci.h"
#include "topology/machine_json.h"
#include "topology/numa.h"
#include "topology/path.h"

namespace telegrad {
namespace {

constexpr char kRootPort[] = "sys/devices/pci0000:00/0000:00:03.0";

// A PCI function at `path`, with its link in bus/pci/devices.
void AddFunction(const std::string& path, const std::string& device_class,
                 const std::string& vendor, Files* files) {
  (*files)[path + "/class"] = device_class;
  (*files)[path + "/vendor"] = vendor;
  (*files)[path + "/numa_node"] = "0\n";
  (*files)["sys/bus/pci/devices/" + path.substr(path.rfind('/') + 1)] =
      "->/" + path;
}

void AddGpu(const std::string& path, Files* files) {
  AddFunction(path, "0x030200\n", "0x10de\n", files);
}

void AddRdma(const std::string& path, const std::string& name, Files* files) {
  AddFunction(path, "0x020700", "0x15b3", files);
  const std::string folder = absl::StrCat(path, "/infiniband/", name);
  (*files)[folder + "/node_type"] = "1: CA\n";
  (*files)[folder + "/device"] =
      "->../../../" + path.substr(path.rfind('/') + 1);
  (*files)[folder + "/ports/1/link_layer"] = "InfiniBand\n";
  (*files)[folder + "/ports/1/state"] = "4: ACTIVE\n";
  (*files)["sys/class/infiniband/" + name] = "->/" + folder;
}

// Two GPUs and a card below one switch, as a root port and three bridges show.
Files OneSwitch() {
  Files files;
  const std::string upstream = absl::StrCat(kRootPort, "/0000:02:00.0");
  AddGpu(upstream + "/0000:03:04.0/0000:04:00.0", &files);
  AddGpu(upstream + "/0000:03:10.0/0000:07:00.0", &files);
  AddRdma(upstream + "/0000:03:14.0/0000:08:00.0", "mlx5_0", &files);
  return files;
}

TEST(Detect, TwoBridgesAreOneSwitch) {
  const Machine machine = Detect(OneSwitch());
  ASSERT_EQ(machine.gpus.size(), 2U);
  ASSERT_EQ(machine.nics.size(), 1U);
  EXPECT_EQ(machine.gpus[0].position.switches,
            std::vector<std::string>{"0000:02:00.0"});
  EXPECT_EQ(machine.gpus[0].position.host_bridge, "pci0000:00");
  EXPECT_EQ(machine.gpu_nic[0][0].path, PathClass::kPix);
  EXPECT_EQ(machine.gpu_nic[1][0].path, PathClass::kPix);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kPix);
}

// A GPU and a card below two inner switches of an outer one.
Files TwoLevels(bool broadcom) {
  Files files;
  const std::string outer = absl::StrCat(kRootPort, "/0000:02:00.0");
  const std::string left = outer + "/0000:03:00.0/0000:04:00.0";
  const std::string right = outer + "/0000:03:01.0/0000:05:00.0";
  AddGpu(left + "/0000:06:00.0/0000:07:00.0", &files);
  AddRdma(right + "/0000:08:00.0/0000:09:00.0", "mlx5_0", &files);
  for (const std::string& each : {outer, left, right}) {
    files[each + "/vendor"] = broadcom ? "0x1000" : "0x10b5";
    files[each + "/device"] = "0xc030";
    files[each + "/subsystem_vendor"] = "0x1000";
    files[each + "/subsystem_device"] = each == outer ? "0x0001" : "0x1002";
  }
  return files;
}

TEST(Detect, LevelsOfABroadcomSwitchAreOne) {
  EXPECT_EQ(Detect(TwoLevels(false)).gpu_nic[0][0].path, PathClass::kPxb);
  EXPECT_EQ(Detect(TwoLevels(true)).gpu_nic[0][0].path, PathClass::kPix);
}

// Configuration space with a PCI Express capability of this port type.
std::string ConfigOfType(int type) {
  std::string space(256, '\0');
  space[0x34] = 0x40;
  space[0x40] = 0x01;  // another capability first
  space[0x41] = 0x50;
  space[0x50] = 0x10;
  space[0x52] = static_cast<char>(type << 4);
  return space;
}

TEST(Detect, PortTypesWinOverCountingBridges) {
  Files files;
  const std::string a = kRootPort;
  const std::string b = a + "/0000:02:00.0";
  const std::string c = b + "/0000:03:00.0";
  const std::string d = c + "/0000:04:00.0";
  AddGpu(d + "/0000:05:00.0", &files);
  EXPECT_EQ(Detect(files).gpus[0].position.switches,
            (std::vector<std::string>{"0000:03:00.0", "0000:00:03.0"}));
  files[a + "/config"] = ConfigOfType(4);
  files[b + "/config"] = ConfigOfType(5);
  files[c + "/config"] = ConfigOfType(6);
  files[d + "/config"] = ConfigOfType(4);
  EXPECT_EQ(Detect(files).gpus[0].position.switches,
            std::vector<std::string>{"0000:02:00.0"});
}

TEST(Detect, GpusAreToldByClassAndVendor) {
  Files files;
  const auto add = [&](const std::string& place, const std::string& kind,
                       const std::string& vendor) {
    AddFunction("sys/devices/pci0000:00/0000:00:" + place, kind, vendor,
                &files);
  };
  add("0a.0", "0x120000\n", "0x1002\n");
  add("0b.0", "0x038000\n", "0x1002\n");
  add("0c.0", "0x030200\n", "0x10de\n");
  add("0d.0", "0x030000\n", "0x1a03\n");
  add("0e.0", "0x038000\n", "0x8086\n");
  add("0f.0", "0x120000\n", "0x8086\n");
  const Machine machine = Detect(files);
  ASSERT_EQ(machine.gpus.size(), 4U);
  EXPECT_EQ(machine.gpus[3].name, "0000:00:0e.0");
}

TEST(Detect, ADomainBelowADeviceHasItsOwnHostBridge) {
  Files files;
  AddGpu("sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e1:00.0",
         &files);
  const Machine machine = Detect(files);
  ASSERT_EQ(machine.gpus.size(), 1U);
  EXPECT_EQ(machine.gpus[0].bdf, (Bdf{.domain = 0x10000, .bus = 0xe1}));
  EXPECT_EQ(machine.gpus[0].position.host_bridge, "pci10000:e0");
}

TEST(Detect, PackagesComeFromTheCpusOfANode) {
  Files files = OneSwitch();
  files["sys/devices/system/node/node0/cpulist"] = "2-3\n";
  files["sys/devices/system/cpu/cpu2/topology/physical_package_id"] = "1\n";
  files["sys/devices/system/cpu/online"] = "0-7,16-23\n";
  const Machine machine = Detect(files);
  EXPECT_EQ(machine.gpus[0].position.package, 1);
  EXPECT_EQ(machine.cpus, 16);
  EXPECT_EQ(machine.numa_nodes, 1);
}

TEST(Detect, AGpuHasANodeWhereThereAreSeveral) {
  Files files = OneSwitch();
  const std::string far = "sys/devices/pci0000:80/0000:81:00.0";
  AddGpu(far, &files);
  files[far + "/numa_node"] = "1\n";
  files["sys/devices/system/node/online"] = "0\n";
  EXPECT_EQ(NumaNodeOf(*RootOf(files), "0000:81:00.0"), -1);
  files["sys/devices/system/node/online"] = "0-1\n";
  // As CUDA and as the kernel write it.
  EXPECT_EQ(NumaNodeOf(*RootOf(files), "00000000:81:00.0"), 1);
  EXPECT_EQ(NumaNodeOf(*RootOf(files), "0000:07:00.0"), 0);
  EXPECT_EQ(NumaNodeOf(*RootOf(files), "0000:08:00.0"), -1);  // a card
  EXPECT_EQ(NumaNodeOf(*RootOf(files), "FFFE:00:00.0"), -1);
  EXPECT_EQ(NumaNodeOf(*RootOf(files), "a GPU"), -1);
  files[far + "/numa_node"] = "-1\n";
  EXPECT_EQ(NumaNodeOf(*RootOf(files), "0000:81:00.0"), -1);
}

TEST(Detect, GpusAreNvidias) {
  Files files;
  AddGpu("sys/devices/pci0000:00/0000:01:00.0", &files);
  AddFunction("sys/devices/pci0000:00/0000:02:00.0", "0x030000", "0x1a03",
              &files);  // a board's own VGA
  AddFunction("sys/devices/pci0000:00/0000:03:00.0", "0x068000", "0x10de",
              &files);  // an NVSwitch
  files["proc/driver/nvidia/gpus/0000:01:00.0/information"] =
      "Model: \t\t NVIDIA H100\nGPU UUID:  \t GPU-1\n";
  files["proc/driver/nvidia/gpus/0000:09:00.0/information"] = "Model: A100\n";
  const Machine machine = Detect(files);
  ASSERT_EQ(machine.gpus.size(), 2U);
  EXPECT_EQ(machine.gpus[0].model, "NVIDIA H100");
  EXPECT_EQ(machine.gpus[0].uuid, "GPU-1");
  EXPECT_EQ(machine.gpus[1].bdf.bus, 9);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kUnknown);
}

TEST(Detect, SlotIsAsFastAsItsSlowerEnd) {
  Files files = OneSwitch();
  const std::string port =
      absl::StrCat(kRootPort, "/0000:02:00.0/0000:03:14.0");
  const std::string card = port + "/0000:08:00.0";
  files[card + "/max_link_speed"] = "32.0 GT/s PCIe";
  files[card + "/max_link_width"] = "16";
  files[card + "/current_link_speed"] = "2.5 GT/s PCIe";
  files[card + "/current_link_width"] = "16";
  Nic nic = Detect(files).nics[0];
  EXPECT_NEAR(*nic.pcie_gbps.value, 32 * 16 * 128 / 130.0, 1e-9);
  EXPECT_NEAR(*nic.pcie_now_gbps.value, 32, 1e-9);
  files[port + "/max_link_speed"] = "16 GT/s";
  files[port + "/max_link_width"] = "8";
  nic = Detect(files).nics[0];
  EXPECT_NEAR(*nic.pcie_gbps.value, 16 * 8 * 128 / 130.0, 1e-9);
}

TEST(Detect, PcieSpeedsOfAllSpellings) {
  EXPECT_NEAR(detect::PcieGbps("8.0 GT/s PCIe", 4), 31.5, 0.1);
  EXPECT_NEAR(detect::PcieGbps("32 GT/s PCIe/s", 1), 31.5, 0.1);
  EXPECT_EQ(detect::PcieGbps("5 GT/s", 2), 8);
  EXPECT_EQ(detect::PcieGbps("64.0 GT/s PCIe", 1), 64);
  for (const char* text : {"", "Unknown", "Unknown speed", "-8 GT/s",
                           "1e99 GT/s", "nan GT/s", "inf GT/s", "0 GT/s"}) {
    EXPECT_EQ(detect::PcieGbps(text, 16), 0) << text;
  }
  EXPECT_EQ(detect::PcieGbps("8.0 GT/s", 0), 0);
  EXPECT_EQ(detect::PcieGbps("8.0 GT/s", 255), 0);
}

TEST(Detect, PortRatesOfAllSpellings) {
  const auto rate = [](const char* text) {
    const detect::PortRate parsed = detect::ParsePortRate(text);
    return std::make_pair(parsed.gbps, parsed.lanes);
  };
  EXPECT_EQ(rate("400 Gb/sec (4X NDR)"), std::make_pair(400.0, 4));
  EXPECT_EQ(rate("2.5 Gb/sec (1X SDR)"), std::make_pair(2.5, 1));
  EXPECT_EQ(rate("10 Gb/sec (4X)"), std::make_pair(10.0, 4));
  EXPECT_EQ(rate("500 Mb/sec"), std::make_pair(0.5, 0));
  for (const char* text : {"", "0 GB/sec", "fast", "10", "10 Tb/sec", "10 ",
                           "nan Gb/sec", "-4 Gb/sec", "1e9 Gb/sec"}) {
    EXPECT_EQ(rate(text), std::make_pair(0.0, 0)) << text;
  }
  EXPECT_EQ(rate("10 Gb/sec (X)"), std::make_pair(10.0, 0));
  EXPECT_EQ(rate("10 Gb/sec (999X)"), std::make_pair(10.0, 0));
}

TEST(Detect, RoceMtuLeavesRoomForHeaders) {
  const std::pair<int, int> cases[] = {{1500, 1024}, {2200, 2048}, {4200, 4096},
                                       {9000, 4096}, {4191, 2048}, {300, 0}};
  for (const auto& [interface, mtu] : cases) {
    EXPECT_EQ(detect::RoceMtu(interface), mtu) << interface;
  }
}

TEST(Detect, EfaIsKnownByItsDriverOrIds) {
  Files files;
  const std::string path = "sys/devices/pci0000:00/0000:00:06.0";
  AddRdma(path, "rdmap0s6", &files);
  files[path + "/infiniband/rdmap0s6/ports/1/link_layer"] = "Unknown\n";
  files[path + "/infiniband/rdmap0s6/node_type"] = "7: <unknown>\n";
  EXPECT_EQ(Detect(files).nics[0].ports[0].fabric, Fabric::kUnknown);
  files[path + "/vendor"] = "0x1d0f";
  files[path + "/device"] = "0xefa1";
  EXPECT_EQ(Detect(files).nics[0].ports[0].fabric, Fabric::kEfa);
}

TEST(Detect, DeviceNodesAreAskedWhereTheyShow) {
  Files files = OneSwitch();
  const std::string card =
      absl::StrCat(kRootPort, "/0000:02:00.0/0000:03:14.0/0000:08:00.0");
  files[card + "/infiniband_verbs/uverbs3/dev"] = "231:195";
  EXPECT_EQ(Detect(files).nics[0].has_device_node, Tri::kUnknown);
  files["dev/null"] = "";
  Machine machine = Detect(files);
  EXPECT_EQ(machine.nics[0].has_device_node, Tri::kNo);
  EXPECT_EQ(machine.capabilities.rdma_device_nodes, Tri::kNo);
  EXPECT_EQ(machine.capabilities.gdr, Tri::kNo);
  files["dev/infiniband/uverbs3"] = "";
  machine = Detect(files);
  EXPECT_EQ(machine.nics[0].has_device_node, Tri::kYes);
  EXPECT_EQ(machine.capabilities.rdma_device_nodes, Tri::kYes);
}

// The kind of an interface that has these files.
NetInterface::Kind KindOf(const Files& more, const std::string& name = "x0") {
  Files files = {{absl::StrCat("sys/class/net/", name, "/type"), "1"}};
  for (const auto& [path, text] : more) {
    files[absl::StrCat("sys/class/net/", name, "/", path)] = text;
  }
  return InterfaceNamed(Detect(files), name).kind;
}

TEST(Detect, InterfacesAreOfManyKinds) {
  using Kind = NetInterface::Kind;
  EXPECT_EQ(KindOf({{"type", "772"}}), Kind::kLoopback);
  EXPECT_EQ(KindOf({{"type", "32"}, {"device/vendor", ""}}), Kind::kIpoib);
  EXPECT_EQ(KindOf({{"bridge/stp_state", "0"}}), Kind::kBridge);
  EXPECT_EQ(KindOf({{"bonding/slaves", ""}}), Kind::kBond);
  EXPECT_EQ(KindOf({{"uevent", "DEVTYPE=vlan\n"}}), Kind::kVlan);
  EXPECT_EQ(KindOf({{"uevent", "A=b\nDEVTYPE=vxlan\n"}}), Kind::kVxlan);
  EXPECT_EQ(KindOf({{"tun_flags", "0x1002"}}), Kind::kTunnel);
  EXPECT_EQ(KindOf({{"type", "776"}}), Kind::kTunnel);
  EXPECT_EQ(KindOf({{"ifindex", "4"}, {"iflink", "7"}}), Kind::kVeth);
  EXPECT_EQ(KindOf({}, "veth12"), Kind::kVeth);
  EXPECT_EQ(KindOf({{"ifindex", "4"}, {"iflink", "4"}}), Kind::kOther);
  EXPECT_EQ(KindOf({{"device/vendor", "0x8086"}}), Kind::kPhysical);
  EXPECT_EQ(KindOf({{"device", "->/sys/nowhere"}}), Kind::kPhysical);
  EXPECT_EQ(KindOf({{"uevent", "DEVTYPE=wlan"}, {"device/vendor", ""}}),
            Kind::kOther);
}

TEST(Detect, AGuestsCardIsACardWithoutItsOwnFunction) {
  Files files;
  const std::string path = "sys/devices/pci0000:00/0000:00:03.0";
  AddFunction(path, "0x020000", "0x1af4", &files);
  files[path + "/virtio2/net/eth0/type"] = "1";
  files[path + "/virtio2/net/eth0/speed"] = "-1\n";
  files[path + "/virtio2/net/eth0/operstate"] = "up";
  files[path + "/virtio2/net/eth0/device"] = "->../../../virtio2";
  files["sys/class/net/eth0"] = absl::StrCat("->/", path, "/virtio2/net/eth0");
  const Machine machine = Detect(files);
  EXPECT_EQ(InterfaceNamed(machine, "eth0").kind,
            NetInterface::Kind::kVirtualDevice);
  const Nic& nic = NicNamed(machine, "eth0");
  EXPECT_EQ(nic.ports[0].fabric, Fabric::kEthernet);
  EXPECT_EQ(nic.ports[0].state.value, 4);
  EXPECT_FALSE(nic.ports[0].gbps.known());
  EXPECT_EQ(nic.position.host_bridge, "pci0000:00");
}

// The same files, each with this text; links stay.
Files Filled(Files files, const std::string& text) {
  for (auto& [path, old] : files) {
    if (old.compare(0, 2, "->") != 0) old = text;
  }
  return files;
}

TEST(Detect, RubbishInFilesMakesFactsUnknown) {
  for (const std::string& rubbish :
       {std::string("\xff\xfe\0\x01\n", 5), std::string(1 << 22, '7'),
        std::string(1 << 16, '\n'), std::string("-9223372036854775809"),
        std::string("0xffffffffffffffffff"), std::string()}) {
    const Machine machine = Detect(Filled(OneSwitch(), rubbish));
    EXPECT_TRUE(machine.gpus.empty());  // neither class nor vendor
    const Nic& nic = NicNamed(machine, "mlx5_0");
    EXPECT_FALSE(nic.node_type.known());
    EXPECT_FALSE(nic.vendor.known());
    EXPECT_FALSE(nic.ports[0].state.known());
    EXPECT_EQ(nic.ports[0].fabric, Fabric::kUnknown);
    const auto again = MachineFromJson(ToJson(machine));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, machine);
  }
}

TEST(Detect, FilesMayEndInZeros) {
  Files padded = OneSwitch();
  for (auto& [path, text] : padded) {
    if (text.substr(0, 2) != "->") text.resize(4096);
  }
  EXPECT_EQ(Detect(padded), Detect(OneSwitch()));
}

TEST(Detect, LinksThatLeadNowhereAreSkippedWithANote) {
  Files files = OneSwitch();
  files["sys/class/infiniband/mlx5_9"] = "->/sys/nowhere";
  files["sys/class/infiniband/loop"] = "->loop";
  files["sys/class/net/br0"] = "->../../devices/virtual/net/br0";
  files["sys/class/net/bonding_masters"] = "bond0";
  files["sys/bus/pci/devices/0000:aa:00.0"] = "->0000:aa:00.0";
  const Machine machine = Detect(files);
  EXPECT_EQ(machine.nics.size(), 1U);
  EXPECT_EQ(machine.gpus.size(), 2U);
  EXPECT_EQ(machine.notes.size(), 3U);
}

TEST(Detect, LiveMachineIsReadWithoutErrors) {
  const absl::StatusOr<Machine> machine = DetectMachine(SysRoot::Live(), {});
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->source, "live");
  EXPECT_FALSE(machine->arch.empty());
  EXPECT_GE(machine->capabilities.why.size(), 5U);
}

}  // namespace
}  // namespace telegrad
