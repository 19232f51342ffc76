#include "topology/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/topology/doctor_machines.h"

namespace telegrad {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Doctor, HealthyMachineHasNothingToSay) {
  for (const Finding& each : Examine(Healthy(), WithCodec(400))) {
    EXPECT_EQ(each.severity, each.id == "T28" ? Level::kInfo : Level::kOk)
        << each.id << ": " << each.sentence;
    EXPECT_FALSE(each.sentence.empty()) << each.id;
    EXPECT_EQ(each.host, "node0");
  }
}

// Of one machine.
std::vector<DoctorCase> AllCases() {
  std::vector<DoctorCase> all = DoctorCases();
  all.insert(all.end(), ContainerCases().begin(), ContainerCases().end());
  return all;
}

TEST(Doctor, EachCheckFindsWhatItIsFor) {
  for (const DoctorCase& each : AllCases()) {
    Machine machine = Healthy();
    each.change(machine);
    bool found = false;
    for (const Finding& finding :
         WithId(Examine(machine, WithCodec(400)), each.id)) {
      found |= finding.severity == each.severity &&
               finding.sentence.find(each.word) != std::string::npos;
    }
    EXPECT_TRUE(found) << each.id << " " << each.word << "\n"
                       << ToText(Examine(machine, WithCodec(400)));
  }
}

TEST(Doctor, ABridgeOverACardIsNoneOfContainers) {
  Machine machine = Healthy();
  machine.interfaces.push_back({.name = "br0",
                                .kind = NetInterface::Kind::kBridge,
                                .up = Is(true),
                                .lower = {"eth0"}});
  machine.environment["UCX_NET_DEVICES"] = "br0";
  EXPECT_EQ(WithId(Examine(machine, {}), "T11").at(0).severity, Level::kOk);
}

TEST(Doctor, SaysWhereToGoOnForEveryWarning) {
  for (const DoctorCase& each : AllCases()) {
    Machine machine = Healthy();
    each.change(machine);
    for (const Finding& finding : Examine(machine, WithCodec(400))) {
      if (finding.severity < Level::kUnknown) continue;
      EXPECT_FALSE(finding.hint.empty()) << finding.id;
    }
  }
}

TEST(Doctor, CodecIsJudgedByTheLink) {
  const auto sentence = [](const DoctorOptions& options) {
    return WithId(Examine(Healthy(), options), "T28").at(0).sentence;
  };
  EXPECT_EQ(sentence(WithCodec(400)),
            "compression off: link 400 Gb/s > break-even 64 Gb/s");
  EXPECT_EQ(sentence(WithCodec(10)),
            "compression pays: link 10 Gb/s < break-even 64 Gb/s");
  EXPECT_THAT(sentence(WithCodec(0)), HasSubstr("pays below 64"));
  EXPECT_THAT(sentence({}), HasSubstr("no codec was measured"));
}

TEST(Doctor, AnEmptyMachineIsNoFailure) {
  EXPECT_NE(ExitCodeOf(Examine({}, {})), ExitCode::kFailures)
      << ToText(Examine({}, {}));
}

TEST(Doctor, SettingsAreNamedWithTheChoiceThatTheyDefeat) {
  const auto sentence = [](std::map<std::string, std::string> environment) {
    Machine machine = Healthy();
    machine.environment = std::move(environment);
    return WithId(Examine(machine, {}), "T22").at(0).sentence;
  };
  EXPECT_EQ(sentence({{"UCX_NET_DEVICES", "eth0"}, {"FI_PROVIDER", "tcp"}}),
            "FI_PROVIDER wins over our choice of the provider of ofi; "
            "UCX_NET_DEVICES wins over our choice of the cards and interfaces "
            "of ucx");
  for (const char* name :
       {"UCX_TLS", "UCX_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME",
        "NCCL_IB_GID_INDEX", "TELEGRAD_NICS", "TELEGRAD_GDR"}) {
    EXPECT_THAT(sentence({{name, "x"}}),
                HasSubstr(std::string(name) + " wins over our choice of "));
  }
  EXPECT_EQ(sentence({{"UCX_LOG_LEVEL", "info"}, {"NCCL_DEBUG", "WARN"}}),
            "no choice of ours depends on these settings of yours: "
            "NCCL_DEBUG, UCX_LOG_LEVEL");
}

TEST(DoctorCompare, EqualHostsAreFine) {
  const std::vector<Finding> findings = Compare(TwoHosts());
  EXPECT_EQ(ExitCodeOf(findings), ExitCode::kOk) << ToText(findings);
}

TEST(DoctorCompare, EachCheckFindsWhatItIsFor) {
  for (const DoctorCase& each : CompareCases()) {
    std::vector<Machine> machines = TwoHosts();
    each.change(machines[1]);
    bool found = false;
    for (const Finding& finding : WithId(Compare(machines), each.id)) {
      found |= finding.severity == each.severity &&
               finding.sentence.find(each.word) != std::string::npos;
    }
    EXPECT_TRUE(found) << each.id << "\n" << ToText(Compare(machines));
  }
}

TEST(Doctor, HostsThatShowNothingAreNotCalledAlike) {
  std::vector<Machine> machines = TwoHosts();
  for (Machine& machine : machines) {
    machine.capabilities.gdr = Tri::kUnknown;
    for (Nic& nic : machine.nics) nic.ports[0].state = {};
  }
  const auto expect_unknown = [&](const char* id) {
    EXPECT_EQ(WithId(Compare(machines), id).at(0).severity, Level::kUnknown)
        << ToText(Compare(machines));
  };
  for (const char* id : {"T07", "T08", "T13", "T19", "T20"}) expect_unknown(id);
  machines = TwoHosts();
  machines[1].capabilities.gdr = Tri::kUnknown;
  machines[1].nics[0].ports[0].chosen_gid = {};
  machines[1].nics[0].ports[0].active_mtu = {};
  for (const char* id : {"T07", "T08", "T13", "T20"}) expect_unknown(id);
}

TEST(Doctor, ExitCodeIsTheWorst) {
  std::vector<Finding> findings = {{.id = "a", .name = "a"}};
  EXPECT_EQ(ExitCodeOf(findings), ExitCode::kOk);
  findings.push_back({.id = "b", .name = "b", .severity = Level::kUnknown});
  EXPECT_EQ(ExitCodeOf(findings), ExitCode::kOk);
  findings.push_back({.id = "c", .name = "c", .severity = Level::kWarn});
  EXPECT_EQ(ExitCodeOf(findings), ExitCode::kWarnings);
  findings.push_back({.id = "d", .name = "d", .severity = Level::kFail});
  EXPECT_EQ(ExitCodeOf(findings), ExitCode::kFailures);
}

TEST(Doctor, JsonHoldsWhatTextSays) {
  Machine machine = Healthy();
  machine.capabilities.gdr = Tri::kNo;
  machine.host = "bad \xff byte";
  const std::vector<Finding> findings = Examine(machine, WithCodec(400));
  const auto json = nlohmann::json::parse(ToJson(findings));
  EXPECT_EQ(json["findings"].size(), findings.size());
  EXPECT_EQ(json["warnings"], 1);
  EXPECT_EQ(json["failures"], 0);
  EXPECT_EQ(json["exit_code"], 3);
  EXPECT_THAT(ToText(findings),
              HasSubstr("[WARN] T12 gdr-no: GPUDirect RDMA is off"));
}

// Dumps are other hosts' words, hints are pasted into a root's shell.
TEST(Doctor, StrangeNamesAreOneWordOfAShell) {
  Machine machine = Healthy();
  machine.nics[1].ports[0].state = Is(1);
  machine.nics[1].ports[0].net_interface = "e'th; reboot";
  const std::vector<Finding> found =
      WithId(Examine(machine, WithCodec(400)), "T03");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].hint, EndsWith("ip link set up dev 'e'\\''th; reboot'"));

  machine = Healthy();
  Port& port = machine.nics[0].ports[0];
  machine.nics[0].name = "mlx;reboot";
  machine.interfaces[0].name = port.net_interface = "eth;reboot";
  machine.interfaces[0].mtu = Is(1500);
  machine.interfaces[0].ecn_np[3] = false;
  for (Gid& gid : port.gids) gid.net_interface = "eth;reboot";
  port.gids.push_back(
      RoceGid(5, GidScope::kIpv4, GidType::kRoceV2, "br;reboot"));
  machine.nics[1].name = "old;reboot";
  machine.nics[1].ports[0].fabric = Fabric::kRoceV1;
  machine.nics[1].ports[0].gids.clear();
  for (const auto& [id, count] :
       {std::pair{"T06", 2U}, std::pair{"T08", 1U}, std::pair{"T24", 1U}}) {
    const std::vector<Finding> all =
        WithId(Examine(machine, {.priority = 3}), id);
    EXPECT_EQ(all.size(), count) << id;
    for (const Finding& each : all) {
      EXPECT_THAT(each.hint, HasSubstr("reboot"));
      const std::string bare =
          std::regex_replace(each.hint, std::regex("'[^']*'"), "WORD");
      EXPECT_THAT(bare, Not(HasSubstr("reboot"))) << each.hint;
    }
  }

  machine = Healthy();
  machine.nics[1].name = "slow;reboot";
  machine.nics[1].ports[0].gbps = Is(100.0);
  const std::vector<Finding> slow =
      WithId(Examine(machine, WithCodec(400)), "T09");
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_THAT(slow[0].hint, EndsWith("TELEGRAD_NICS='^=slow;reboot'"));
}

}  // namespace
}  // namespace telegrad
