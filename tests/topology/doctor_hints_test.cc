// What the doctor's hints say to set, set as it stands there: it is read, and
// does what the finding asks for.
#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/topology/doctor_machines.h"
#include "tests/topology/trees.h"

namespace telegrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Names and values of "TELEGRAD_NAME=VALUE" in a hint.
std::vector<std::pair<std::string, std::string>> Assignments(
    const std::string& hint) {
  std::vector<std::pair<std::string, std::string>> found;
  size_t begin = 0;
  while ((begin = hint.find("TELEGRAD_", begin)) != std::string::npos) {
    const size_t end =
        hint.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", begin);
    const bool is_assigned = end != std::string::npos && hint[end] == '=';
    if (is_assigned) {
      const size_t stop = std::min(hint.find_first_of(" ;", end), hint.size());
      found.emplace_back(hint.substr(begin, end - begin),
                         hint.substr(end + 1, stop - end - 1));
    }
    begin = std::min(end, hint.size());
  }
  return found;
}

struct PortFacts {
  std::string name;
  std::string fabric;  // of an active RDMA port, else empty
  std::optional<int> gid;
};

std::vector<PortFacts> Ports(const Machine& machine) {
  std::vector<PortFacts> ports;
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      const bool counts = nic.is_rdma && port.state.value == 4;
      const bool is_roce = port.fabric == Fabric::kRoceV1;
      ports.push_back(
          {.name = absl::StrCat(nic.name, "/", port.number),
           .fabric =
               counts ? Name(is_roce ? Fabric::kRoceV2 : port.fabric) : "",
           .gid = port.chosen_gid.value});
    }
  }
  return ports;
}

// Those of `before` that `after` lacks.
std::vector<PortFacts> Gone(const Machine& before, const Machine& after) {
  const std::vector<PortFacts> left = Ports(after);
  std::vector<PortFacts> gone = Ports(before);
  std::erase_if(gone, [&](const PortFacts& each) {
    return std::any_of(left.begin(), left.end(), [&](const PortFacts& other) {
      return other.name == each.name;
    });
  });
  return gone;
}

bool HasFindingOf(const Machine& machine, const char* id,
                  const std::string& port) {
  const std::vector<Finding> all = WithId(Examine(machine, WithCodec(400)), id);
  return std::any_of(all.begin(), all.end(), [&](const Finding& each) {
    return each.sentence.find(port + " ") == 0 ||
           each.sentence.find(port + "'s ") == 0;
  });
}

// Of active RDMA ports.
std::set<std::string> FabricsOf(const Machine& machine) {
  std::set<std::string> fabrics;
  for (const PortFacts& each : Ports(machine)) {
    if (!each.fabric.empty()) fabrics.insert(each.fabric);
  }
  return fabrics;
}

// What is left speaks one fabric and is not slow; what is gone was slow or
// spoke another, T09's own port among it.
void ExpectLeftOut(const Finding& finding, const Machine& before,
                   const Machine& after) {
  const std::vector<PortFacts> gone = Gone(before, after);
  ASSERT_FALSE(gone.empty());
  const bool is_own =
      std::any_of(gone.begin(), gone.end(), [&](const PortFacts& each) {
        return finding.sentence.find(each.name + " ") == 0;
      });
  EXPECT_TRUE(finding.id != "T09" || is_own) << finding.sentence;
  const std::set<std::string> kept = FabricsOf(after);
  ASSERT_EQ(kept.size(), 1U);
  for (const PortFacts& each : gone) {
    EXPECT_FALSE(each.fabric.empty()) << each.name;
    EXPECT_TRUE(kept.count(each.fabric) == 0 ||
                HasFindingOf(before, "T09", each.name))
        << each.name;
  }
  for (const Finding& each : Examine(after, WithCodec(400))) {
    EXPECT_THAT(each.hint, Not(HasSubstr("TELEGRAD_NICS")));
  }
}

// Ports that are in doubt have other rows of their tables, this finding's among
// them, and are in doubt no longer.
void ExpectOtherGid(const Finding& finding, const Machine& before,
                    const Machine& after) {
  const std::vector<PortFacts> was = Ports(before);
  const std::vector<PortFacts> is = Ports(after);
  ASSERT_EQ(was.size(), is.size());
  int changes_of_its_own = 0;
  for (size_t i = 0; i < is.size(); ++i) {
    if (is[i].gid == was[i].gid) continue;
    EXPECT_TRUE(is[i].gid.has_value()) << is[i].name;
    EXPECT_TRUE(HasFindingOf(before, "T06", is[i].name)) << is[i].name;
    EXPECT_FALSE(HasFindingOf(after, "T06", is[i].name)) << is[i].name;
    changes_of_its_own += finding.sentence.find(is[i].name) == 0 ? 1 : 0;
  }
  EXPECT_EQ(changes_of_its_own, 1);
}

// How many assignments the machine's hints have.
int ExpectHintsWork(const Machine& machine) {
  int seen = 0;
  for (const Finding& finding : Examine(machine, WithCodec(400))) {
    for (const auto& [name, value] : Assignments(finding.hint)) {
      SCOPED_TRACE(absl::StrCat(finding.id, ": ", name, "=", value));
      ++seen;
      const auto options = ParseTopologyOptions({{name, value}});
      EXPECT_TRUE(options.ok()) << options.status();
      if (!options.ok()) continue;
      Machine after = machine;
      ApplyOverrides(*options, after);
      if (name == "TELEGRAD_NICS") ExpectLeftOut(finding, machine, after);
      if (name == "TELEGRAD_GID_INDEX") {
        ExpectOtherGid(finding, machine, after);
      }
      EXPECT_TRUE(name == "TELEGRAD_NICS" || name == "TELEGRAD_GID_INDEX" ||
                  name == "TELEGRAD_TOPO_FILE");
    }
  }
  return seen;
}

// The findings know what these stand for.
void ExpectNoPlaceholders(const std::vector<Finding>& findings) {
  for (const Finding& each : findings) {
    EXPECT_THAT(each.hint,
                Not(ContainsRegex("(^|[^A-Z_])(NAME|BDF|HOST)($|[^A-Z_])")))
        << each.id;
  }
}

TEST(DoctorHints, WorkOnMachinesWithOneFault) {
  int seen = 0;
  for (const DoctorCase& each : DoctorCases()) {
    SCOPED_TRACE(absl::StrCat(each.id, " ", each.word));
    Machine machine = Healthy();
    each.change(machine);
    seen += ExpectHintsWork(machine);
  }
  EXPECT_GE(seen, 4);
}

TEST(DoctorHints, WorkOnRecordedMachines) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  int seen = 0;
  for (const char* name :
       {"sysfs-hwloc-mlx4-ib-fdr.tar.gz", "sysfs-gpud-h100-8xNDR-bond.tar.gz",
        "sysfs-prometheus-quirks.tar.gz!procfs/fixtures/sys",
        "sysfs-prometheus-quirks.tar.gz!node_exporter/sys",
        "synthetic/roce-gid-4entry", "synthetic/roce-gid-vxlan-vs-bond",
        "synthetic/mixed-ib-roce-efa-down", "synthetic/container-errno"}) {
    SCOPED_TRACE(name);
    const Machine machine = DetectRecorded(name);
    seen += ExpectHintsWork(machine);
    ExpectNoPlaceholders(Examine(machine, {}));
  }
  EXPECT_GE(seen, 3);
}

TEST(DoctorHints, NameWhatTheFindingKnows) {
  for (const DoctorCase& each : DoctorCases()) {
    SCOPED_TRACE(absl::StrCat(each.id, " ", each.word));
    Machine machine = Healthy();
    each.change(machine);
    ExpectNoPlaceholders(Examine(machine, WithCodec(400)));
  }
  for (const DoctorCase& each : CompareCases()) {
    SCOPED_TRACE(absl::StrCat(each.id, " ", each.word));
    std::vector<Machine> machines = TwoHosts();
    each.change(machines[1]);
    ExpectNoPlaceholders(Compare(machines));
  }
}

TEST(DoctorHints, NameInterfacesAndBridges) {
  const auto hint = [](const std::vector<Finding>& findings, const char* id) {
    return WithId(findings, id).at(0).hint;
  };
  Machine machine = Healthy();
  machine.nics[1].ports[0].state = Is(1);
  EXPECT_THAT(hint(Examine(machine, {}), "T03"),
              EndsWith("; ip link set up dev eth1"));
  machine.nics[1].ports[0].net_interface = "";
  EXPECT_THAT(hint(Examine(machine, {}), "T03"), EndsWith("transceiver"));
  machine.capabilities.acs_clear = Tri::kNo;
  machine.capabilities.why["acs_clear"] = {
      {.source = "/sys/devices/pci0000:00/0000:00:01.0/config"},
      {.source = "/sys/devices/pci0000:80/0000:80:03.1/config"}};
  EXPECT_THAT(hint(Examine(machine, {}), "T15"),
              HasSubstr(": setpci -s 0000:00:01.0 ECAP_ACS+0x6.w=0000; setpci "
                        "-s 0000:80:03.1 ECAP_ACS+0x6.w=0000; or"));
  std::vector<Machine> machines = TwoHosts();
  machines[1].nics[0].ports[0].active_mtu = Is(1024);
  EXPECT_EQ(hint(Compare(machines), "T08"),
            "on node1: ip link set dev eth0 mtu 9000; and the switch");
  for (Machine& each : machines) {
    for (Nic& nic : each.nics) nic.ports[0].fabric = Fabric::kInfiniBand;
  }
  EXPECT_THAT(hint(Compare(machines), "T08"), HasSubstr("subnet manager"));
}

std::vector<std::string> HintsOf(const Machine& machine, const char* id,
                                 int priority = 3) {
  std::vector<std::string> hints;
  for (const Finding& each :
       WithId(Examine(machine, {.priority = priority}), id)) {
    if (each.severity == Level::kWarn) hints.push_back(each.hint);
  }
  return hints;
}

// Six NICs: a filter by the start of "mlx5_1" would take "mlx5_10" along.
Machine LongNames() {
  Machine machine = Healthy();
  for (const char* name : {"mlx5_10", "mlx5_11", "mlx5_2", "mlx5_20"}) {
    machine.nics.push_back(machine.nics[1]);
    machine.nics.back().name = name;
  }
  FillPaths(machine);
  return machine;
}

TEST(DoctorHints, ASlowPortIsLeftOutAlone) {
  Machine machine = LongNames();
  machine.nics[1].ports[0].gbps = Is(100.0);
  EXPECT_THAT(HintsOf(machine, "T09"),
              ElementsAre(HasSubstr("TELEGRAD_NICS=^=mlx5_1")));
  EXPECT_EQ(ExpectHintsWork(machine), 1);
  machine.nics[1].ports.push_back(machine.nics[0].ports[0]);
  machine.nics[1].ports[1].number = 2;
  EXPECT_THAT(HintsOf(machine, "T09"),
              ElementsAre(HasSubstr("TELEGRAD_NICS=^=mlx5_1:1")));
  EXPECT_EQ(ExpectHintsWork(machine), 1);
}

TEST(DoctorHints, AllForeignPortsAreLeftOut) {
  Machine machine = LongNames();
  for (const size_t i : {1U, 4U}) {
    machine.nics[i].ports[0].fabric = Fabric::kInfiniBand;
  }
  machine.nics[0].ports.push_back(machine.nics[0].ports[0]);
  machine.nics[0].ports[1].number = 2;
  machine.nics[0].ports[1].fabric = Fabric::kEfa;
  EXPECT_THAT(HintsOf(machine, "T04"),
              ElementsAre(HasSubstr("TELEGRAD_NICS=^=mlx5_0:2,mlx5_1,mlx5_2")));
  EXPECT_EQ(ExpectHintsWork(machine), 1);
}

TEST(DoctorHints, AnotherRowIsNamedWithItsPort) {
  Machine machine = Healthy();
  machine.nics[1].ports.push_back(machine.nics[1].ports[0]);
  Port& second = machine.nics[1].ports[1];
  second.number = 2;
  second.gids.push_back(RoceGid(6, GidScope::kIpv4, GidType::kRoceV2, "br0"));
  EXPECT_THAT(HintsOf(machine, "T06"),
              ElementsAre(HasSubstr("on br0: export "
                                    "TELEGRAD_GID_INDEX=mlx5_1:2:6")));
  EXPECT_EQ(ExpectHintsWork(machine), 1);
}

// Whichever of several hints is pasted, or all in turn, nothing is lost.
TEST(DoctorHints, OneValueIsForAllPorts) {
  Machine machine = LongNames();
  for (const size_t i : {0U, 3U}) {
    machine.nics[i].ports[0].gids.push_back(
        RoceGid(5, GidScope::kIpv4, GidType::kRoceV2, "br0"));
  }
  for (const size_t i : {1U, 4U}) machine.nics[i].ports[0].gbps = Is(100.0);
  const std::string rows = "export TELEGRAD_GID_INDEX=mlx5_0:5,mlx5_11:5";
  EXPECT_THAT(HintsOf(machine, "T06"),
              ElementsAre(EndsWith(rows), EndsWith(rows)));
  const std::string slow = "TELEGRAD_NICS=^=mlx5_1,mlx5_2";
  EXPECT_THAT(HintsOf(machine, "T09"),
              ElementsAre(EndsWith(slow), EndsWith(slow)));
  EXPECT_EQ(ExpectHintsWork(machine), 4);
}

// A slow port, and one of another fabric.
Machine SlowAndMixed() {
  Machine machine = LongNames();
  machine.nics[1].ports[0].fabric = Fabric::kInfiniBand;
  machine.nics[4].ports[0].gbps = Is(100.0);
  return machine;
}

TEST(DoctorHints, OneValueIsForAllChecks) {
  const Machine machine = SlowAndMixed();
  const std::string both = ": export TELEGRAD_NICS=^=mlx5_1,mlx5_2";
  EXPECT_THAT(HintsOf(machine, "T04"), ElementsAre(EndsWith(both)));
  EXPECT_THAT(HintsOf(machine, "T09"), ElementsAre(EndsWith(both)));
  EXPECT_EQ(ExpectHintsWork(machine), 2);
}

TEST(DoctorHints, WhatIsLeftOutAlreadyStaysOut) {
  const std::pair<const char*, const char*> cases[] = {
      {"^=mlx5_20", "^=mlx5_20,mlx5_1,mlx5_2"},
      {"^mlx5_20", "=mlx5_0:1,mlx5_10:1,mlx5_11:1"},
      {"mlx5_0,mlx5_1,mlx5_2:1", "=mlx5_0:1,mlx5_10:1,mlx5_11:1,mlx5_20:1"},
      {"=mlx5_0,mlx5_1,mlx5_11", "=mlx5_0:1,mlx5_11:1"}};
  for (const auto& [present, wanted] : cases) {
    SCOPED_TRACE(present);
    Machine machine = SlowAndMixed();
    const auto options = ParseTopologyOptions({{"TELEGRAD_NICS", present}});
    ASSERT_TRUE(options.ok()) << options.status();
    ApplyOverrides(*options, machine);
    EXPECT_THAT(HintsOf(machine, "T04"),
                ElementsAre(EndsWith(absl::StrCat("TELEGRAD_NICS=", wanted))));
    EXPECT_GE(ExpectHintsWork(machine), 1);
  }
}

TEST(DoctorHints, ARowThatWasForcedIsInNoDoubtAndStaysInTheNextHint) {
  Machine machine = Healthy();
  for (Nic& nic : machine.nics) {
    nic.ports[0].gids.push_back(
        RoceGid(5, GidScope::kIpv4, GidType::kRoceV2, "br0"));
  }
  const auto first = ParseTopologyOptions({{"TELEGRAD_GID_INDEX", "mlx5_0:5"}});
  ASSERT_TRUE(first.ok());
  ApplyOverrides(*first, machine);
  EXPECT_THAT(HintsOf(machine, "T06"),
              ElementsAre(EndsWith("TELEGRAD_GID_INDEX=mlx5_0:5,mlx5_1:5")));
  const auto both =
      ParseTopologyOptions({{"TELEGRAD_GID_INDEX", "mlx5_0:5,mlx5_1:5"}});
  ASSERT_TRUE(both.ok());
  ApplyOverrides(*both, machine);
  EXPECT_THAT(HintsOf(machine, "T06"), ElementsAre());
}

TEST(DoctorHints, EcnIsSwitchedOnForThePriorityOnTheSideThatIsOff) {
  Machine machine = Healthy();
  NetInterface& net = machine.interfaces[0];
  net.ecn_np[5] = true;
  net.ecn_rp[5] = false;
  EXPECT_THAT(HintsOf(machine, "T24", 5),
              ElementsAre("mlnx_qos -i eth0 --trust dscp --pfc "
                          "0,0,0,0,0,1,0,0; echo 1 > "
                          "/sys/class/net/eth0/ecn/roce_rp/enable/5"));
  net.ecn_np[3] = net.ecn_rp[3] = false;
  EXPECT_THAT(HintsOf(machine, "T24"),
              ElementsAre("mlnx_qos -i eth0 --trust dscp --pfc "
                          "0,0,0,1,0,0,0,0; echo 1 > "
                          "/sys/class/net/eth0/ecn/roce_np/enable/3; echo 1 > "
                          "/sys/class/net/eth0/ecn/roce_rp/enable/3"));
}

}  // namespace
}  // namespace telegrad
