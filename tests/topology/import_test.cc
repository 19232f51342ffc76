#include "topology/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/machine_json.h"
#include "topology/path.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Path(const std::string& name) {
  return TELEGRAD_TOPOLOGY_OWN_FIXTURES "/" + name;
}

Machine Load(const std::string& name) {
  const auto machine = MachineFromFile(Path(name));
  EXPECT_TRUE(machine.ok()) << machine.status();
  return machine.ok() ? *machine : Machine();
}

std::vector<std::string> NicNames(const Machine& machine) {
  std::vector<std::string> names;
  for (const Nic& nic : machine.nics) names.push_back(nic.name);
  return names;
}

std::vector<std::string> Classes(const std::vector<PathInfo>& row) {
  std::vector<std::string> words;
  for (const PathInfo& path : row) words.emplace_back(Name(path.pcie));
  return words;
}

TEST(NcclXml, NamesCardsAndNets) {
  const Machine machine = Load("nccl_quirks.xml");
  EXPECT_THAT(NicNames(machine),
              ElementsAre("mlx5_0", "mlx5_1", "mlx4_0", "0000:82:00.0",
                          "0000:83:00.0", "eth0", "0000:84:00.0"));
  const Nic& two_ports = machine.nics[0];
  ASSERT_EQ(two_ports.ports.size(), 2u);
  EXPECT_EQ(two_ports.ports[0].gbps.value_or(0), 200);
  EXPECT_EQ(two_ports.ports[0].state.value_or(0), 4);
  EXPECT_EQ(two_ports.ports[1].number, 2);
  EXPECT_FALSE(two_ports.ports[1].gbps.known());  // -1
  EXPECT_EQ(two_ports.card, machine.nics[1].card);
  EXPECT_NEAR(two_ports.pcie_gbps.value_or(0), 504.1, 0.1);
  const Fabric fabrics[] = {Fabric::kRoceV2,     Fabric::kRoceV2,
                            Fabric::kInfiniBand, Fabric::kInfiniBand,
                            Fabric::kEfa,        Fabric::kEthernet,
                            Fabric::kEthernet};
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    EXPECT_EQ(machine.nics[i].ports.at(0).fabric, fabrics[i]) << i;
    EXPECT_EQ(machine.nics[i].is_rdma, i < 5) << i;
    EXPECT_EQ(machine.nics[i].pci_class.why.at(0).confidence,
              Confidence::kInferred);
  }
  EXPECT_EQ(machine.capabilities.gdr, Tri::kUnknown);  // a promise
  EXPECT_EQ(machine.capabilities.why.count("gdr"), 1u);
}

TEST(NcclXml, FoldsBroadcomAndKeepsSwitchesWithoutNames) {
  const Machine machine = Load("nccl_quirks.xml");
  ASSERT_EQ(machine.gpus.size(), 3u);
  EXPECT_EQ(machine.gpus[0].name, "nvml0");
  EXPECT_EQ(machine.gpus[2].name, "0000:81:00.0");
  EXPECT_THAT(machine.gpus[1].position.switches, ElementsAre("0000:01:00.0"));
  EXPECT_THAT(Classes(machine.gpu_nic[1]),
              ElementsAre("PIX", "PIX", "PIX", "SYS", "SYS", "PHB", "SYS"));
  EXPECT_THAT(Classes(machine.gpu_nic[2]),
              ElementsAre("SYS", "SYS", "SYS", "PIX", "PHB", "SYS", "PHB"));
  EXPECT_EQ(machine.numa_nodes, 2);
  EXPECT_EQ(machine.cpus, 8);
  EXPECT_EQ(machine.arch, "x86_64");
  std::vector<std::string> notes;
  for (const Evidence& note : machine.notes) notes.push_back(note.what);
  EXPECT_THAT(notes,
              ElementsAre("skipped a GPU", "skipped a GPU", "skipped a net",
                          "skipped an NVLink to itself"));
}

TEST(NcclXml, ReadsNvlinksOnce) {
  const Machine machine = Load("nccl_quirks.xml");
  ASSERT_EQ(machine.links.size(), 5u);
  int between = 0;
  for (const GpuLink& link : machine.links) {
    if (link.b >= 0) {
      ++between;
      EXPECT_EQ(link.lanes, 4);
      EXPECT_EQ(link.gbytes_per_s.value_or(0), 100);
    }
    if (link.b == GpuLink::kToCpu && link.lanes == 2) {
      EXPECT_EQ(link.a, 1);
      EXPECT_EQ(link.gbytes_per_s.value_or(0), 50);
    }
  }
  EXPECT_EQ(between, 1);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kNvl);
  EXPECT_EQ(machine.gpu_gpu[0][1].pcie, PathClass::kPix);
}

TEST(NcclXml, SaysNoGdrOnlyWhenNoDeviceHasIt) {
  const char text[] = R"(<system version="1"><cpu numaid="0">
    <pci busid="0000:05:00.0" class="0x020700"><nic>
    <net name="mlx5_0" gdr="0"/></nic></pci></cpu></system>)";
  EXPECT_EQ(MachineFromText(text)->capabilities.gdr, Tri::kNo);
}

// As RCCL writes it on a host with two MI300A.
TEST(NcclXml, OfVersion2HasGpusOfAmd) {
  const char text[] = R"(<system version="2">
    <cpu numaid="2" affinity="000000ff,ffff0000" arch="x86_64">
    <pci busid="0000:82:00.0" class="0x120000" vendor="0x1002" device="0x74a0">
    <gpu dev="0" sm="228" gcn="942" arch="38911" rank="0" gdr="1">
    <xgmi target="0000:c2:00.0" count="1" tclass="0x120000"/></gpu></pci></cpu>
    <cpu numaid="3" affinity="ffffff00,00000000" arch="x86_64">
    <pci busid="0000:c2:00.0" class="0x120000" vendor="0x1002" device="0x74a0">
    <gpu dev="1" sm="228" gcn="gfx942" arch="38911" rank="1" gdr="1">
    <xgmi target="0000:82:00.0" count="1" tclass="0x120000"/></gpu></pci>
    <pci busid="0000:c1:00.0" class="0x020000" vendor="0x17db" device="0x0501">
    <nic><net name="cxi1" dev="1" speed="200000" port="1" gdr="1"/></nic></pci>
    </cpu></system>)";
  const auto machine = MachineFromText(text);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->cpus, 48);
  ASSERT_EQ(machine->gpus.size(), 2u);
  EXPECT_EQ(machine->gpus[1].name, "rocm1");
  EXPECT_EQ(machine->gpus[1].position.numa_node, 3);
  // 228 compute units are no compute capability.
  EXPECT_FALSE(machine->gpus[0].compute_capability.value.has_value());
  ASSERT_EQ(machine->links.size(), 1u);
  EXPECT_EQ(machine->links[0].a, 0);
  EXPECT_EQ(machine->links[0].b, 1);
  EXPECT_EQ(machine->links[0].lanes, 1);
  EXPECT_FALSE(machine->links[0].gbytes_per_s.value.has_value());
  ASSERT_EQ(machine->nics.size(), 1u);
  EXPECT_EQ(machine->nics[0].ports.at(0).gbps.value_or(0), 200);
}

// One machine of one CPU, with what `inside` lists below it.
Machine OfNccl(const std::string& inside) {
  const auto machine = MachineFromText(
      "<system version=\"1\"><cpu numaid=\"0\">" + inside + "</cpu></system>");
  EXPECT_TRUE(machine.ok()) << machine.status();
  return machine.ok() ? *machine : Machine();
}

std::string PciOf(const std::string& bdf, const std::string& ids,
                  const std::string& net) {
  return "<pci busid=\"" + bdf + "\" " + ids + "><nic><net name=\"" + net +
         "\" speed=\"10000\" port=\"1\"/></nic></pci>";
}

// rdma-core gives "rdma" to what is neither InfiniBand nor RoCE.
TEST(NcclXml, EfaIsNotRoceByItsClass) {
  const std::string ethernet = "class=\"0x020000\"";
  const Machine machine = OfNccl(
      PciOf("0000:50:00.0", ethernet, "rdmap79s0") +
      PciOf("0000:51:00.0", ethernet, "efa_0") +
      PciOf("0000:52:00.0", ethernet + " vendor=\"0x1137\"", "rdmap82s0") +
      PciOf("0000:53:00.0", ethernet, "rocep83s0") +
      PciOf("0000:54:00.0", ethernet, "mlx5_0"));
  const Fabric fabrics[] = {Fabric::kEfa, Fabric::kEfa, Fabric::kUnknown,
                            Fabric::kRoceV2, Fabric::kRoceV2};
  ASSERT_EQ(machine.nics.size(), 5u);
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    EXPECT_TRUE(machine.nics[i].is_rdma) << i;
    EXPECT_EQ(machine.nics[i].ports.at(0).fabric, fabrics[i]) << i;
    EXPECT_EQ(machine.nics[i].ports.at(0).gbps.value_or(0), 10) << i;
  }
}

TEST(NcclXml, TunnelsAreNoCardsAnd10000IsNoRate) {
  std::string loose;
  for (const char* name : {"tailscale0", "docker0", "br-12ab", "veth1", "wg0",
                           "tun0", "tap1", "virbr0", "cni0", "eth0", "bond0"}) {
    loose += std::string("<nic><net name=\"") + name +
             "\" speed=\"10000\" port=\"0\"/></nic>";
  }
  const Machine machine =
      OfNccl(loose + PciOf("0009:01:00.0", "class=\"0x028000\"", "wlP9s9"));
  EXPECT_THAT(NicNames(machine), ElementsAre("eth0", "bond0", "wlP9s9"));
  for (const Nic& nic : machine.nics) {
    EXPECT_FALSE(nic.ports.at(0).gbps.known()) << nic.name;
  }
  EXPECT_EQ(machine.notes.size(), 9u);
}

TEST(HwlocXml, FindsGpusOfAmdAndIntelByTheirClass) {
  std::string text = "<topology version=\"2.0\"><object type=\"Machine\">";
  const auto add = [&](int bus, const std::string& ids,
                       const std::string& below) {
    text += "<object type=\"PCIDev\" pci_busid=\"0000:0" + std::to_string(bus) +
            ":00.0\" pci_type=\"" + ids + "] [0000:0000] 00\">" + below +
            "</object>";
  };
  const std::string opencl = "<object type=\"OSDev\" name=\"opencl0d0\"/>";
  add(1, "0300 [1002:66a1", opencl);
  add(2, "1200 [1002:74a1", "");
  add(3, "0380 [1002:66a1", "");
  add(4, "0380 [8086:0bd5", "");
  add(5, "0300 [1002:1638", "");
  add(6, "0300 [1a03:2000", opencl);
  add(7, "0300 [8086:4680", opencl);
  const auto machine = MachineFromText(text + "</object></topology>");
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_EQ(machine->gpus.size(), 4u);
  EXPECT_EQ(machine->gpus[3].name, "0000:04:00.0");
}

TEST(HwlocXml, InfersFabrics) {
  const Machine machine = Load("hwloc2.xml");
  EXPECT_THAT(NicNames(machine),
              ElementsAre("mlx5_0", "mlx4_0", "rdmap128s2", "hfi1_0", "eth9"));
  const Fabric fabrics[] = {Fabric::kRoceV2, Fabric::kInfiniBand, Fabric::kEfa,
                            Fabric::kOmniPath, Fabric::kEthernet};
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    EXPECT_EQ(machine.nics[i].ports.at(0).fabric, fabrics[i]) << i;
  }
  const Port& roce = machine.nics[0].ports[0];
  EXPECT_EQ(roce.chosen_gid.value_or(-1), 3);
  ASSERT_EQ(roce.gids.size(), 6u);
  EXPECT_EQ(roce.gids[0].scope, GidScope::kLinkLocal);
  EXPECT_EQ(roce.gids[2].type, GidType::kRoceV1);
  EXPECT_EQ(roce.gids[3].type, GidType::kRoceV2);
  EXPECT_EQ(roce.gids[4].scope, GidScope::kIpv6);
  EXPECT_EQ(roce.gids[5].scope, GidScope::kLinkLocal);
  EXPECT_EQ(roce.net_interface, "eth2");
  const Nic& old = machine.nics[1];
  ASSERT_EQ(old.ports.size(), 2u);
  EXPECT_EQ(old.ports[0].lid.value_or(0), 0x3a4u);
  EXPECT_EQ(old.ports[0].chosen_gid.value_or(-1), 0);
  EXPECT_EQ(old.ports[1].state.value_or(0), 1);
  EXPECT_EQ(old.position.numa_node, 1);
  EXPECT_EQ(old.position.package, 1);
}

TEST(HwlocXml, FindsGpusWithAndWithoutTheirLibraries) {
  const Machine machine = Load("hwloc2.xml");
  ASSERT_EQ(machine.gpus.size(), 2u);
  EXPECT_EQ(machine.gpus[0].name, "cuda0");
  EXPECT_EQ(machine.gpus[0].model, "A100");
  EXPECT_EQ(machine.gpus[0].uuid, "GPU-1");
  EXPECT_EQ(machine.gpus[1].name, "0000:14:00.0");
  EXPECT_EQ(machine.gpus[0].position.host_bridge, "pci0000:10");
  EXPECT_THAT(machine.gpus[0].position.switches, ElementsAre("0000:11:00.0"));
  EXPECT_THAT(Classes(machine.gpu_nic[1]),
              ElementsAre("PIX", "SYS", "SYS", "SYS", "unknown"));
  ASSERT_EQ(machine.links.size(), 1u);  // the malformed table is not read
  EXPECT_EQ(machine.links[0].lanes, 2);
  EXPECT_EQ(machine.links[0].gbytes_per_s.value_or(0), 50);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kNvl);
  EXPECT_EQ(machine.notes.size(), 2u);
  EXPECT_EQ(machine.cpus, 3);
  EXPECT_EQ(machine.numa_nodes, 2);
}

TEST(HwlocXml, KnowsInterfaces) {
  const Machine machine = Load("hwloc2.xml");
  ASSERT_EQ(machine.interfaces.size(), 3u);
  EXPECT_EQ(machine.interfaces[0].name, "eth2");
  EXPECT_EQ(machine.interfaces[0].kind, NetInterface::Kind::kPhysical);
  EXPECT_EQ(machine.interfaces[0].numa_node.value_or(-1), 0);
  EXPECT_EQ(machine.interfaces[1].kind, NetInterface::Kind::kVirtualDevice);
  EXPECT_EQ(machine.interfaces[2].kind, NetInterface::Kind::kIpoib);
}

TEST(HwlocXml, ReadsVersion1) {
  const Machine machine = Load("hwloc1.xml");
  EXPECT_EQ(machine.arch, "ppc64le");
  ASSERT_EQ(machine.nics.size(), 1u);
  EXPECT_EQ(machine.nics[0].ports.at(0).fabric, Fabric::kInfiniBand);
  EXPECT_EQ(machine.nics[0].ports[0].state.value_or(0), 2);  // no manager
  EXPECT_TRUE(machine.nics[0].position.switches.empty());    // a root port
  EXPECT_EQ(machine.nics[0].position.numa_node, 0);
  EXPECT_EQ(machine.gpus.at(0).position.numa_node, 64);
  EXPECT_EQ(machine.gpu_nic[0][0].path, PathClass::kSys);
}

TEST(HwlocXml, RefusesVersion3) {
  const auto machine =
      MachineFromText("<?xml version=\"1.0\"?><topology version=\"3.0\"/>");
  EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(machine.status().message(),
              HasSubstr("hwloc XML 3.0 not readable"));
}

// What was imported is what its dump says; the dump committed here holds the
// schema in place.
TEST(Import, DumpsAreReadBack) {
  for (const char* name : {"nccl_quirks.xml", "hwloc2.xml", "hwloc1.xml"}) {
    const Machine machine = Load(name);
    const auto again = MachineFromText(ToJson(machine));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(*again == machine) << name;
  }
  const auto dump = MachineFromFile(Path("hwloc2.json"));
  ASSERT_TRUE(dump.ok()) << dump.status();
  Machine source = Load("hwloc2.xml");
  source.source = Path("hwloc2.json");
  EXPECT_TRUE(*dump == source);
}

TEST(Import, SaysWhatItReads) {
  for (const char* text :
       {"", " \n", "hello", "<html/>", "<system/>", "<system version=\"3\"/>",
        "<topology version=\"4\"/>", "<topology", "{}", "<a></b>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]><system version=\"1\">&b;</system>",
        "<?xml version=\"1.0\"?>", "\x1f\x8b\x08"}) {
    const auto machine = MachineFromText(text);
    EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_THAT(MachineFromText("hello").status().message(), HasSubstr("hwloc"));
  EXPECT_THAT(MachineFromText("<html/>").status().message(),
              HasSubstr("<html>"));
}

TEST(Import, BoundsHostileXml) {
  std::string deep = "<system version=\"1\">";
  for (int i = 0; i < 1000; ++i) deep += "<pci>";
  EXPECT_THAT(MachineFromText(deep).status().message(), HasSubstr("too deep"));
  std::string many = "<system version=\"1\">";
  for (int i = 0; i < 200001; ++i) many += "<a/>";
  EXPECT_THAT(MachineFromText(many + "</system>").status().message(),
              HasSubstr("too many"));
  std::string nets = "<system version=\"1\"><nic>";
  for (int i = 0; i < 20000; ++i) {
    nets += "<net name=\"eth" + std::to_string(i) + "\"/>";
  }
  EXPECT_EQ(MachineFromText(nets + "</nic></system>").status().code(),
            absl::StatusCode::kResourceExhausted);
  const std::string empty = "<system version=\"1\"/>";
  EXPECT_TRUE(MachineFromText("\xef\xbb\xbf\n" + empty)->gpus.empty());
}

TEST(Import, NamesFilesThatAreNone) {
  EXPECT_EQ(MachineFromFile(Path("absent.xml")).status().code(),
            absl::StatusCode::kNotFound);
  for (const char* path : {"/dev/null", "/dev/zero"}) {
    EXPECT_THAT(MachineFromFile(path).status().message(), HasSubstr(path));
  }
  const std::string fifo = ::testing::TempDir() + "/no-machine.fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);  // it held the reader up
  EXPECT_THAT(MachineFromFile(fifo).status().message(),
              HasSubstr("no regular file"));
  unlink(fifo.c_str());
  const absl::Status folder = MachineFromFile(Path("")).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(folder.message(), HasSubstr("a recorded /sys"));
  EXPECT_EQ(Load("hwloc1.xml").source, Path("hwloc1.xml"));
}

}  // namespace
}  // namespace telegrad
