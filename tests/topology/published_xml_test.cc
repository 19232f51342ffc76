// Real machines' XML files against the matrices that were computed from the
// text of the same files by an independent program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/topology/fixtures.h"
#include "topology/import.h"
#include "topology/machine_json.h"
#include "topology/numa.h"
#include "topology/path.h"

namespace telegrad {
namespace {

using nlohmann::json;

Machine LoadPublished(const std::string& name) {
  const auto machine =
      MachineFromFile(testing::PublishedFixtures() + "/" + name);
  EXPECT_TRUE(machine.ok()) << machine.status();
  return machine.ok() ? *machine : Machine();
}

json Expected(const std::string& name) {
  static const json all = json::parse(
      testing::ReadText(testing::PublishedFixtures() + "/EXPECTED.json"));
  return all.at(name);
}

size_t GpuIndex(const Machine& machine, const json& bus_id) {
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    if (ToString(machine.gpus[i].bdf) == bus_id) return i;
  }
  ADD_FAILURE() << "no GPU " << bus_id;
  return 0;
}

// "0000:0c:00.0 (mlx5_0+mlx5_1)", "nopci (eth0)", "0101:00:00.0" or "mlx5_0".
std::vector<size_t> NicIndices(const Machine& machine, const std::string& id) {
  const std::vector<std::string> parts = absl::StrSplit(id, ' ');
  std::set<std::string> names = {id};
  if (parts.size() == 2) {
    names = absl::StrSplit(
        absl::string_view(parts[1]).substr(1, parts[1].size() - 2), '+');
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const Nic& nic = machine.nics[i];
    const bool is_named = names.count(nic.name) > 0;
    if (!is_named) continue;
    found.push_back(i);
    if (parts.size() == 2 && parts[0] != "nopci") {
      EXPECT_EQ(ToString(nic.bdf.value_or({})), parts[0]);
    }
  }
  EXPECT_EQ(found.size(), names.size()) << id;
  return found;
}

class PublishedXml : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedXml, HasTheExpectedMatrices) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished(GetParam());
  const json expected = Expected(GetParam());
  // The recordings' count leaves out AMD's, which their PCI class tells.
  const bool is_ulna = absl::StrContains(GetParam(), "llnl-ulna");
  ASSERT_EQ(machine.gpus.size(), is_ulna ? 2 : int{expected["n_gpu"]});
  const bool is_nccl = expected["format"] == "nccl-topo-xml";
  for (const json& gpu : expected["gpu"]) {
    const size_t g = GpuIndex(machine, gpu["busid"]);
    const json& row = gpu[is_nccl ? "to_nic" : "to_ib"];
    size_t num_nics = 0;
    for (const auto& [id, path] : row.items()) {
      for (const size_t n : NicIndices(machine, id)) {
        EXPECT_EQ(Name(machine.gpu_nic[g][n].path), path)
            << gpu["busid"] << " to " << id;
        ++num_nics;
      }
    }
    const auto num_listed =
        std::count_if(machine.nics.begin(), machine.nics.end(),
                      [&](const Nic& nic) { return is_nccl || nic.is_rdma; });
    EXPECT_EQ(num_nics, static_cast<size_t>(num_listed));
    EXPECT_EQ(gpu["to_gpu"].size() + 1, machine.gpus.size());
    for (const auto& [id, path] : gpu["to_gpu"].items()) {
      const auto other =
          std::find_if(machine.gpus.begin(), machine.gpus.end(),
                       [&, id = id](const Gpu& each) {
                         return ToString(each.bdf) == id || each.name == id;
                       });
      ASSERT_NE(other, machine.gpus.end()) << id;
      const auto o = static_cast<size_t>(other - machine.gpus.begin());
      EXPECT_EQ(Name(machine.gpu_gpu[g][o].pcie), path)
          << gpu["busid"] << " to " << id;
    }
  }
}

TEST_P(PublishedXml, HasTheExpectedDevices) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished(GetParam());
  const json expected = Expected(GetParam());
  for (const json& gpu : expected["gpu"]) {
    const Gpu& mine = machine.gpus[GpuIndex(machine, gpu["busid"])];
    EXPECT_EQ(mine.name, gpu.value("name", mine.name));
    EXPECT_EQ(mine.model, gpu.value("model", mine.model));
    const json& numa = gpu["numa"];  // "0", or a set "0x00000001"
    const auto node = std::stoul(numa.get<std::string>(), nullptr, 0);
    EXPECT_EQ(numa.get<std::string>().starts_with("0x")
                  ? 1ul << mine.position.numa_node
                  : static_cast<unsigned long>(mine.position.numa_node),
              node);
  }
  for (const json& nic : expected.value("ib", json::array())) {
    const Nic& mine = machine.nics[NicIndices(machine, nic["name"]).at(0)];
    EXPECT_TRUE(mine.is_rdma);
    EXPECT_EQ(ToString(mine.bdf.value_or({})), nic["busid"]);
    EXPECT_EQ(absl::StrFormat("%04x", mine.pci_class.value_or(0) >> 8),
              nic["pci_class"]);
    EXPECT_EQ(mine.net_interfaces, nic["netdev"]);
    EXPECT_EQ(std::to_string(mine.ports.at(0).state.value_or(0)),
              nic["Port1State"]);
    EXPECT_EQ(absl::StrFormat("0x%x", mine.ports[0].lid.value_or(0)),
              nic["Port1LID"]);
  }
  for (const json& nic : expected.value("nic", json::array())) {
    for (const size_t n : NicIndices(machine, nic["id"])) {
      EXPECT_EQ(std::to_string(machine.nics[n].position.numa_node),
                nic["numa"]);
    }
  }
}

TEST_P(PublishedXml, SurvivesJson) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished(GetParam());
  const auto again = MachineFromJson(ToJson(machine));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == machine);
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedXml,
    ::testing::Values("nccl-azure-ndv4-a100.xml", "nccl-azure-ndv5-h100.xml",
                      "nccl-azure-ncv4-a100-noRDMA.xml", "nccl-aws-p4d-efa.xml",
                      "nccl-oci-bm-h100-roce.xml",
                      "hwloc-llnl-pascal-2xP100-1xEDR.xml",
                      "hwloc-llnl-ulna-arm64-mixed-IB-RoCE.xml",
                      "hwloc-aws-g4dn-metal-8xT4-EFA.xml",
                      "hwloc-dgx2-16xV100-nvlink.xml"));

std::map<std::string, int> CountClasses(const std::vector<PathInfo>& row) {
  std::map<std::string, int> counts;
  for (const PathInfo& path : row) ++counts[Name(path.path)];
  return counts;
}

const Nic& Find(const Machine& machine, const std::string& name) {
  for (const Nic& nic : machine.nics) {
    if (nic.name == name) return nic;
  }
  ADD_FAILURE() << "no NIC " << name;
  static const Nic none;
  return none;
}

TEST(PublishedNccl, AzureNdv4HasTwoInfinibandCardsPerSwitch) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished("nccl-azure-ndv4-a100.xml");
  ASSERT_EQ(machine.nics.size(), 8u);
  for (const Nic& nic : machine.nics) {
    EXPECT_EQ(nic.ports.at(0).fabric, Fabric::kInfiniBand);
  }
  for (const auto& row : machine.gpu_nic) {
    EXPECT_EQ(CountClasses(row),
              (std::map<std::string, int>{{"PIX", 2}, {"SYS", 6}}));
  }
  EXPECT_EQ(machine.numa_nodes, 4);
  EXPECT_EQ(machine.cpus, 96);
}

TEST(PublishedNccl, AzureNdv5KeepsDomainsApart) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished("nccl-azure-ndv5-h100.xml");
  for (const auto& row : machine.gpu_nic) {
    EXPECT_EQ(CountClasses(row),
              (std::map<std::string, int>{{"PIX", 1}, {"PHB", 3}, {"SYS", 4}}));
  }
  EXPECT_EQ(machine.gpus[0].bdf.domain, 1u);
  EXPECT_EQ(machine.gpus[7].bdf.domain, 0xcu);
}

TEST(PublishedNccl, AzureNcv4HasPlainEthernetWithoutPci) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished("nccl-azure-ncv4-a100-noRDMA.xml");
  ASSERT_EQ(machine.nics.size(), 1u);
  const Nic& eth0 = machine.nics[0];
  EXPECT_FALSE(eth0.is_rdma);
  EXPECT_FALSE(eth0.bdf.known());
  EXPECT_EQ(eth0.ports.at(0).fabric, Fabric::kEthernet);
  EXPECT_EQ(eth0.ports[0].gbps.value_or(0), 100);
  EXPECT_EQ(eth0.ports[0].gbps.why.at(0).confidence, Confidence::kReported);
  EXPECT_TRUE(machine.links.empty());  // each GPU is its own peer there
  EXPECT_EQ(machine.gpus[0].compute_capability.value_or(0), 80);
}

TEST(PublishedNccl, AwsP4dHasEfaThatLooksLikeEthernet) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished("nccl-aws-p4d-efa.xml");
  ASSERT_EQ(machine.nics.size(), 4u);
  for (size_t n = 0; n < 4; ++n) {
    EXPECT_EQ(machine.nics[n].ports.at(0).fabric, Fabric::kEfa);
    EXPECT_EQ(machine.nics[n].pci_class.value_or(0), 0x020000u);
    int near = 0;
    for (const auto& row : machine.gpu_nic)
      near += row[n].path == PathClass::kPix;
    EXPECT_EQ(near, 2);
  }
}

TEST(PublishedNccl, OciFoldsBroadcomSwitchesAndHasTwoNetsPerCard) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished("nccl-oci-bm-h100-roce.xml");
  ASSERT_EQ(machine.nics.size(), 16u);
  std::set<std::string> cards;
  for (const Nic& nic : machine.nics) {
    EXPECT_EQ(nic.ports.at(0).fabric, Fabric::kRoceV2);
    EXPECT_EQ(nic.ports[0].gbps.value_or(0), 180);
    EXPECT_NE(nic.name, "mlx5_2");
    EXPECT_NE(nic.name, "mlx5_11");
    cards.insert(nic.card);
  }
  EXPECT_EQ(cards.size(), 8u);
  std::set<std::string> switches;
  std::map<int, int> lanes;
  for (const GpuLink& link : machine.links) {
    EXPECT_EQ(link.b, GpuLink::kToSwitch);
    switches.insert(link.b_name);
    lanes[link.a] += link.lanes;
  }
  EXPECT_EQ(switches.size(), 4u);
  EXPECT_EQ(lanes.size(), 8u);
  for (const auto& [gpu, count] : lanes) EXPECT_EQ(count, 18) << gpu;
  EXPECT_EQ(machine.gpu_gpu[0][7].path, PathClass::kNvl);
  EXPECT_EQ(machine.gpus[0].compute_capability.value_or(0), 90);
}

TEST(PublishedHwloc, PascalHasOneSwitchWhereBridgesAreThree) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished("hwloc-llnl-pascal-2xP100-1xEDR.xml");
  const Nic& nic = Find(machine, "mlx5_0");
  EXPECT_EQ(nic.ports.at(0).fabric, Fabric::kInfiniBand);
  EXPECT_EQ(nic.position.switches, std::vector<std::string>{"0000:02:00.0"});
  EXPECT_EQ(nic.position.package, 0);
  EXPECT_EQ(nic.ports[0].chosen_gid.value_or(-1), 0);
  EXPECT_EQ(machine.numa_nodes, 2);
  EXPECT_EQ(machine.cpus, 72);
  EXPECT_EQ(machine.host, "pascal4");
}

TEST(PublishedHwloc, UlnaMixesInfinibandAndRoce) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine =
      LoadPublished("hwloc-llnl-ulna-arm64-mixed-IB-RoCE.xml");
  EXPECT_EQ(machine.arch, "aarch64");
  for (const char* name : {"mlx5_0", "mlx5_3"}) {
    const Port& port = Find(machine, name).ports.at(0);
    EXPECT_EQ(port.fabric, Fabric::kInfiniBand);
    EXPECT_EQ(port.state.value_or(0), 4);
  }
  const Port& roce = Find(machine, "mlx5_1").ports.at(0);
  EXPECT_EQ(roce.fabric, Fabric::kRoceV2);
  EXPECT_EQ(roce.link_layer, LinkLayer::kEthernet);
  EXPECT_EQ(roce.chosen_gid.value_or(-1), 3);
  EXPECT_EQ(roce.chosen_gid.why.at(0).confidence, Confidence::kInferred);
  EXPECT_EQ(roce.net_interface, "enp22s0f0");
  const Port& down = Find(machine, "mlx5_2").ports.at(0);
  EXPECT_EQ(down.state.value_or(0), 1);
  EXPECT_FALSE(down.chosen_gid.known());
  EXPECT_EQ(Find(machine, "mlx5_1").card, Find(machine, "mlx5_2").card);
}

TEST(PublishedHwloc, G4dnHasEfaOnTheSecondPackage) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished("hwloc-aws-g4dn-metal-8xT4-EFA.xml");
  const Nic& nic = Find(machine, "rdmap197s0");
  EXPECT_EQ(nic.ports.at(0).fabric, Fabric::kEfa);
  EXPECT_EQ(nic.ports[0].link_layer, LinkLayer::kUnknown);
  EXPECT_EQ(nic.position.package, 1);
  EXPECT_FALSE(Find(machine, "eth0").is_rdma);
}

TEST(PublishedHwloc, Dgx2JoinsGpusThroughNvswitches) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = LoadPublished("hwloc-dgx2-16xV100-nvlink.xml");
  ASSERT_EQ(machine.gpus.size(), 16u);
  EXPECT_TRUE(machine.nics.empty());
  std::map<std::string, int> gpus_of_switch;
  for (const GpuLink& link : machine.links) {
    EXPECT_EQ(link.gbytes_per_s.value_or(0), 25);
    EXPECT_EQ(link.lanes, 1);
    ++gpus_of_switch[link.b_name];
  }
  EXPECT_EQ(machine.links.size(), 96u);  // six of each GPU
  EXPECT_EQ(gpus_of_switch.size(), 12u);
  EXPECT_EQ(gpus_of_switch["0000:66:00.0"], 8);
  for (size_t a = 0; a < 16; ++a) {
    for (size_t b = 0; b < 16; ++b) {
      if (a == b) continue;
      const PathInfo& path = machine.gpu_gpu[a][b];
      EXPECT_EQ(path.path, PathClass::kNvl);
      EXPECT_EQ(path.why.find("assumed") != std::string::npos, a / 8 != b / 8);
    }
  }
}

TEST(Published, PinnedMemoryIsOnTheNodeOfEachGpu) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  for (const std::string name :
       {"nccl-azure-ndv5-h100.xml", "nccl-azure-ndv4-a100.xml",
        "nccl-azure-ncv4-a100-noRDMA.xml", "nccl-oci-bm-h100-roce.xml"}) {
    SCOPED_TRACE(name);
    const Machine machine = LoadPublished(name);
    const json expected = Expected(name);
    std::set<int> nodes;
    for (const json& gpu : expected.at("gpu")) {
      const int wanted = std::stoi(gpu.at("numa").get<std::string>());
      EXPECT_EQ(NumaNodeOf(machine, gpu.at("busid").get<std::string>()), wanted)
          << gpu.at("busid");
      nodes.insert(wanted);
    }
    EXPECT_GT(nodes.size(), 1u);
  }
}

}  // namespace
}  // namespace telegrad
