// Recorded machines against EXPECTED.json of their folder, and the rules that
// each of them is there for.
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/topology/trees.h"
#include "topology/detect/read.h"
#include "topology/path.h"

namespace telegrad {
namespace {

using nlohmann::json;

class Recorded : public ::testing::Test {
 protected:
  void SetUp() override { TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES(); }
};

std::optional<int64_t> Leading(const json& value) {
  return value.is_string() ? detect::LeadingInt(value.get<std::string>())
                           : std::nullopt;
}

template <typename T>
std::optional<int64_t> Got(const Known<T>& known) {
  return known.known() ? std::optional<int64_t>(*known.value) : std::nullopt;
}

void ExpectGids(const json& rows, const Port& port) {
  EXPECT_EQ(rows.size(), port.gids.size());
  for (const Gid& gid : port.gids) {
    const json row = rows.value(std::to_string(gid.index), json::array());
    ASSERT_EQ(row.size(), 3U) << gid.index;
    EXPECT_EQ(json(gid.net_interface), row[2].is_null() ? json("") : row[2]);
    const bool is_v2 = row[1] == "RoCE v2";
    const bool is_v1 = row[1] == "IB/RoCE v1";
    if (is_v1 || is_v2) {
      EXPECT_EQ(gid.type, is_v2 ? GidType::kRoceV2 : GidType::kRoceV1);
    }
    // The last 32 bits are enough to tell the rows apart.
    const std::string tail = absl::StrCat(
        absl::Hex(gid.raw[12] << 8 | gid.raw[13], absl::kZeroPad4), ":",
        absl::Hex(gid.raw[14] << 8 | gid.raw[15], absl::kZeroPad4));
    EXPECT_TRUE(absl::EndsWith(row[0].get<std::string>(), tail)) << row[0];
  }
}

void ExpectPort(const json& wanted, const Machine& machine) {
  const Nic& nic = NicNamed(machine, wanted["name"]);
  const int number = std::stoi(wanted["port"].get<std::string>());
  const auto port =
      std::find_if(nic.ports.begin(), nic.ports.end(),
                   [&](const Port& each) { return each.number == number; });
  ASSERT_NE(port, nic.ports.end()) << wanted;
  const std::string layer = wanted["link_layer"];
  EXPECT_STREQ(Name(port->link_layer),
               layer == "Unknown" ? "unknown" : layer.c_str());
  EXPECT_EQ(Got(port->state), Leading(wanted["state"]));
  EXPECT_EQ(Got(port->physical_state), Leading(wanted["phys_state"]));
  EXPECT_EQ(Got(port->lid), Leading(wanted["lid"]));
  EXPECT_EQ(Got(nic.node_type), Leading(wanted["node_type"]));
  EXPECT_EQ(Got(nic.pci_class), Leading(wanted["pci_class"]));
  EXPECT_EQ(nic.position.numa_node, Leading(wanted["numa_node"]).value_or(-1));
  if (wanted["hca_type"].is_string()) {
    EXPECT_EQ(json(nic.board), wanted["hca_type"]);
  }
  const double rate = std::stod(wanted["rate"].get<std::string>());
  EXPECT_EQ(port->gbps.value_or(0), rate);
  ExpectGids(wanted["gids"], *port);
}

void ExpectInterface(const json& wanted, const Machine& machine) {
  const NetInterface& each = InterfaceNamed(machine, wanted["name"]);
  EXPECT_EQ(Got(each.mtu), Leading(wanted["mtu"]));
  const int64_t speed =
      wanted.contains("speed") ? Leading(wanted["speed"]).value_or(-1) : -1;
  EXPECT_EQ(each.gbps.known(), speed > 0) << each.name;
  if (speed > 0) {
    EXPECT_EQ(*each.gbps.value * 1000, static_cast<double>(speed));
  }
  if (wanted["operstate"] != "unknown") {
    EXPECT_EQ(each.up.value, std::optional(wanted["operstate"] == "up"));
  }
  if (wanted.contains("numa_node")) {
    EXPECT_EQ(Got(each.numa_node), Leading(wanted["numa_node"]));
  }
}

void ExpectSkipped(const json& wanted, const Machine& machine) {
  const std::string name = absl::StrCat("/", wanted["name"].get<std::string>());
  const auto names_it = [&](const Evidence& note) {
    return absl::EndsWith(note.source, name);
  };
  EXPECT_TRUE(std::any_of(machine.notes.begin(), machine.notes.end(), names_it))
      << wanted;
}

TEST_F(Recorded, AreAsExpected) {
  std::ifstream file(testing::PublishedFixtures() + "/EXPECTED.json");
  const json expected = json::parse(file);
  int seen = 0;
  for (const auto& [name, wanted] : expected.items()) {
    if (!absl::StartsWith(wanted["format"].get<std::string>(), "sysfs")) {
      continue;
    }
    SCOPED_TRACE(name);
    ++seen;
    const Machine machine = DetectRecorded(name);
    for (const json& each : wanted["ib"]) {
      each.contains("note") ? ExpectSkipped(each, machine)
                            : ExpectPort(each, machine);
    }
    for (const json& each : wanted["net"]) {
      each.contains("note") ? ExpectSkipped(each, machine)
                            : ExpectInterface(each, machine);
    }
  }
  EXPECT_EQ(seen, 11);
}

// 14
TEST_F(Recorded, Mlx4IsInfiniBandWhateverItsPciClass) {
  const Machine machine = DetectRecorded("sysfs-hwloc-mlx4-ib-fdr.tar.gz");
  const Nic& nic = NicNamed(machine, "mlx4_0");
  EXPECT_EQ(nic.ports[0].fabric, Fabric::kInfiniBand);
  EXPECT_EQ(nic.ports[0].chosen_gid.value, 0);
  EXPECT_EQ(nic.ports[0].lanes.value, 4);
  EXPECT_EQ(nic.ports[0].net_interface, "ib0");
  EXPECT_EQ(nic.bdf.value, (Bdf{.bus = 0x82}));
  EXPECT_EQ(nic.position.host_bridge, "pci0000:80");
  EXPECT_EQ(nic.position.numa_node, 1);
  EXPECT_EQ(InterfaceNamed(machine, "ib0").kind, NetInterface::Kind::kIpoib);
  EXPECT_EQ(machine.nics.size(), 3U);  // and eth0, eth1
}

TEST_F(Recorded, Bzip2AndOneFolderOnTopAreRead) {
  const Machine machine =
      DetectRecorded("sysfs-hwloc-mlx4-ib-fdr-full.tar.bz2");
  EXPECT_EQ(NicNamed(machine, "mlx4_0").position.package, 1);
  EXPECT_EQ(NicNamed(machine, "eth0").position.package, 0);
  EXPECT_EQ(machine.numa_nodes, 2);
  EXPECT_EQ(machine.cpus, 16);
}

// 15
TEST_F(Recorded, BondOfEthernetAmongInfiniBand) {
  const Machine machine = DetectRecorded("sysfs-gpud-h100-8xNDR-bond.tar.gz");
  EXPECT_EQ(std::count_if(machine.nics.begin(), machine.nics.end(),
                          [](const Nic& nic) {
                            return nic.ports[0].fabric == Fabric::kInfiniBand;
                          }),
            8);
  const Port& bond = NicNamed(machine, "mlx5_bond_0").ports[0];
  EXPECT_EQ(bond.fabric, Fabric::kRoceV2);
  EXPECT_EQ(bond.lanes.value, 2);
  EXPECT_FALSE(bond.chosen_gid.known());
}

// 16
TEST_F(Recorded, OmniPathIsNotInfiniBand) {
  const Machine machine =
      DetectRecorded("sysfs-prometheus-quirks.tar.gz!procfs/fixtures/sys");
  EXPECT_EQ(NicNamed(machine, "hfi1_0").ports[0].fabric, Fabric::kOmniPath);
  EXPECT_EQ(NicNamed(machine, "mlx5_0").ports[0].lanes.value, 1);
  EXPECT_EQ(NicNamed(machine, "mlx4_0").ports.size(), 2U);
  const NetInterface& eth0 = InterfaceNamed(machine, "eth0");
  EXPECT_EQ(eth0.kind, NetInterface::Kind::kPhysical);  // a dangling device
  ASSERT_EQ(eth0.ecn_np.size(), 8U);
  ASSERT_EQ(eth0.ecn_rp.size(), 8U);
  EXPECT_FALSE(eth0.ecn_np.at(2));
  EXPECT_FALSE(eth0.ecn_np.at(5));
  EXPECT_TRUE(eth0.ecn_np.at(3));
  EXPECT_FALSE(eth0.ecn_rp.at(7));
}

// 17
TEST_F(Recorded, IwarpIsNotInfiniBand) {
  const Machine machine =
      DetectRecorded("sysfs-prometheus-quirks.tar.gz!node_exporter/sys");
  const Port& port = NicNamed(machine, "i40iw0").ports[0];
  EXPECT_EQ(port.fabric, Fabric::kIwarp);
  EXPECT_EQ(port.gbps.value, 10);
  EXPECT_EQ(port.lanes.value, 4);
  EXPECT_FALSE(InterfaceNamed(machine, "bond0").gbps.known());
  EXPECT_EQ(InterfaceNamed(machine, "dmz").lower,
            (std::vector<std::string>{"eth0", "eth4"}));
}

// 18 to 22
TEST_F(Recorded, RoceGidsAreChosenByTypeInterfaceAndAddress) {
  struct {
    const char* name;
    const char* nic;
    std::optional<int> gid;
    std::optional<int> mtu;
    const char* interface;
  } const cases[] = {
      {"roce-gid-4entry", "mlx5_bond_0", 3, 4096, "bond0"},
      {"roce-gid-2entry-peer", "mlx5_0", 1, 1024, "eth2"},
      {"roce-gid-vxlan-vs-bond", "mlx5_bond_0", 5, 4096, "bond1"},
      {"roce-gid-ipv6-ula", "bnxt_re0", 1, 4096, "ens3"},
      {"roce-gid-linklocal-only", "mlx5_0", std::nullopt, 1024, "eth2"},
      {"container-errno", "mlx5_0", 3, 4096, "eth0"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.name);
    const Machine machine =
        DetectRecorded(absl::StrCat("synthetic/", each.name));
    const Port& port = NicNamed(machine, each.nic).ports[0];
    EXPECT_EQ(port.fabric, Fabric::kRoceV2);
    EXPECT_EQ(port.chosen_gid.value, each.gid);
    EXPECT_EQ(port.active_mtu.value, each.mtu);
    EXPECT_EQ(port.net_interface, each.interface);
    // The interface is the RDMA device's: no card of its own.
    EXPECT_EQ(machine.nics.size(), 1U);
  }
}

// 23
TEST_F(Recorded, MixedFabricsAreToldApart) {
  const Machine machine = DetectRecorded("synthetic/mixed-ib-roce-efa-down");
  EXPECT_EQ(NicNamed(machine, "mlx5_0").ports[0].fabric, Fabric::kInfiniBand);
  EXPECT_EQ(NicNamed(machine, "mlx5_1").ports[0].chosen_gid.value, 3);
  EXPECT_EQ(NicNamed(machine, "rdmap16s27").ports[0].fabric, Fabric::kEfa);
  const Port& down = NicNamed(machine, "mlx5_2").ports[0];
  EXPECT_EQ(down.state.value, 1);
  EXPECT_FALSE(down.gbps.known());
  EXPECT_FALSE(NicNamed(machine, "eth0").is_rdma);
  EXPECT_EQ(machine.nics.size(), 5U);  // not docker0, not lo, not eth2
}

// 24
TEST_F(Recorded, ContainerHidesRowsAndDevices) {
  const Machine machine = DetectRecorded("synthetic/container-errno");
  EXPECT_EQ(machine.capabilities.rdma_device_nodes, Tri::kNo);
  EXPECT_EQ(machine.capabilities.gdr, Tri::kNo);
  const NetInterface& eth0 = InterfaceNamed(machine, "eth0");
  EXPECT_FALSE(eth0.gbps.known());
  ASSERT_EQ(eth0.gbps.why.size(), 1U);
  EXPECT_EQ(eth0.gbps.why[0].error, EINVAL);
}

}  // namespace
}  // namespace telegrad
