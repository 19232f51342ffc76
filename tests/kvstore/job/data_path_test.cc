#include "kvstore/job/path/data_path.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/job/path/connections.h"
#include "tests/kvstore/job/path_members.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::MustPath;
using testing::On;
using testing::StatusIs;
using testing::Three;

constexpr Fabric kIb = Fabric::kInfiniBand;
constexpr Fabric kEth = Fabric::kEthernet;

TEST(DataPath, IsTheBestNetworkThatAllMachinesCanUse) {
  const Plan all = MustPath(Three(kIb, kIb, kIb));
  EXPECT_EQ(all.network, NetworkKind::kInfiniBand);
  EXPECT_EQ(all.transport, "ucx");
  EXPECT_EQ(all.workers, 2);
  EXPECT_EQ(all.servers, 1);
  // A server's machine counts as well.
  for (const auto& members :
       {Three(kEth, kIb, kIb), Three(kIb, kEth, kIb), Three(kIb, kIb, kEth)}) {
    const Plan plan = MustPath(members);
    EXPECT_EQ(plan.transport, "tcp");
    EXPECT_THAT(plan.warnings, Contains(HasSubstr("IB is on 2 of 3 machines")));
  }
}

TEST(DataPath, LeavesOutWhatABuildLacks) {
  std::vector<MemberFacts> members = Three(kIb, kIb, kIb);
  members[1].transports = {"tcp"};
  members[1].lacks = "ucx: no library";
  const auto path = RequestPath(members);
  ASSERT_THAT(path, IsOk());
  EXPECT_THAT(path->notes, ElementsAre("worker/1 on b cannot make ucx: no "
                                       "library"));
  EXPECT_EQ(MustPath(members).transport, "tcp");
}

TEST(DataPath, OneMachineHasItsMemory) {
  MemberFacts local = On("worker/0", "a", kIb);
  local.interface = "lo";
  local.machine = NotLookedAt();
  MemberFacts server = local;
  server.name = "server/0";
  EXPECT_EQ(MustPath({local, server}).transport, "ucx");
  EXPECT_THAT(Lines(MustPath({local, server})),
              Contains("memory host: nothing leaves the machine"));
  EXPECT_THAT(RequestPath(std::vector{local, server})->notes, IsEmpty());
  // Of a machine of which nothing is known, beyond loopback: what always works.
  local.interface = server.interface = "";
  EXPECT_EQ(MustPath({local, server}).transport, "tcp");
}

TEST(DataPath, SaysOfAMachineThatItIsUnknownWhereAnyWasLookedAt) {
  std::vector<MemberFacts> members = Three(kEth, kEth, kEth);
  for (MemberFacts& each : members) {
    each.transport = "tcp";
    each.machine = NotLookedAt();
    const auto heard = ParseMemberFacts(each.name, ToText(each));
    ASSERT_THAT(heard, IsOk());
    each = *heard;
  }
  EXPECT_THAT(RequestPath(members)->notes, IsEmpty());
  members[2] = Three(kEth, kEth, kEth)[2];
  EXPECT_THAT(
      RequestPath(members)->notes,
      ElementsAre("nothing is known of the machine of worker/0 (a), it is "
                  "taken to be like the others: not looked at",
                  HasSubstr("worker/1 (b)")));
  // One that was looked at in vain.
  members[2].machine = absl::NotFoundError("no /sys");
  EXPECT_THAT(RequestPath(members)->notes, Contains(HasSubstr("no /sys")));
}

TEST(DataPath, WhatMembersWereToldBindsThePlan) {
  std::vector<MemberFacts> members = Three(kIb, kIb, kIb);
  members[1].transport = "tcp";
  const Plan tcp = MustPath(members);
  EXPECT_EQ(tcp.transport, "tcp");
  EXPECT_THAT(Lines(tcp), Contains("network TCP: --transport tcp"));
  // One that the planner knows nothing of, but the member's build does.
  members[1].transport = "pigeon";
  members[1].transports = {"pigeon"};
  EXPECT_EQ(MustPath(members).transport, "pigeon");
  members[1].transports = members[0].transports;
  members[1].transport = "auto";
  members[2].connections = 3;
  const Plan three = MustPath(members);
  EXPECT_EQ(three.connections, 3);
  EXPECT_THAT(Lines(three), Contains("connections 3: --connections 3"));
}

TEST(DataPath, NamesTwoThatWereToldDifferently) {
  std::vector<MemberFacts> members = Three(kIb, kIb, kIb);
  members[1].transport = "ucx";
  members[2].transport = "tcp";
  const auto differ = [&](const char* text) {
    const auto path = RequestPath(members);
    EXPECT_THAT(path, StatusIs(StatusCode::kFailedPrecondition, text));
    EXPECT_EQ(ExitCodeOf(path.status()), ExitCode::kMismatch);
  };
  differ("transport: worker/1 has ucx, server/0 has tcp");
  members[2].transport = "ucx";
  members[0].connections = 4;
  members[2].connections = 2;
  differ("connections: worker/0 has 4, server/0 has 2; give all the same");
  members[0].connections = 2;
  members[0].tls = "tcp";
  members[1].tls = "shm";
  differ("tls: worker/0 has tcp, worker/1 has shm");
}

TEST(DataPath, WorkersHaveTheSameGivenPlan) {
  std::vector<MemberFacts> members = Three(kIb, kIb, kIb);
  const auto given = std::make_shared<const GivenPlan>(
      GivenPlan{"--plan p.json", MustPath(members)});
  members[0].plan = members[1].plan = given->plan.digest;
  const auto path = RequestPath(members, given);  // a server needs none
  ASSERT_THAT(path, IsOk());
  EXPECT_THAT(PlanPath(path->machines, path->request), IsOk());
  members[0].machine->nics[0].name = "mlx5_9";
  const auto other = RequestPath(members, given);
  EXPECT_THAT(PlanPath(other->machines, other->request),
              StatusIs(StatusCode::kFailedPrecondition,
                       "--plan p.json has the card mlx5_0 of a, which has "
                       "mlx5_9"));
  const auto differ = [&](const char* text) {
    const absl::Status status = RequestPath(members, given).status();
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, text));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
  };
  members[1].plan = "";
  differ("worker/1 has none; give all workers the same --plan");
  members[1].plan = given->plan.digest;
  members[2].plan = "abcd";
  differ("server/0 has abcd; give all workers the same --plan");
}

TEST(DataPath, ANetworkThatOneCannotUseIsRefused) {
  std::vector<MemberFacts> members = Three(kIb, kEth, kIb);
  members[0].transport = "IB";
  const auto path = RequestPath(members);
  ASSERT_THAT(path, IsOk());
  EXPECT_THAT(PlanPath(path->machines, path->request),
              StatusIs(StatusCode::kFailedPrecondition,
                       "IB was asked for (--transport IB), but b cannot use "
                       "it: it has no IB port"));
}

TEST(DataPath, ConnectionsAreByTheInterfaceThatIsBound) {
  std::vector<MemberFacts> members = {On("worker/0", "a", kEth, 10),
                                      On("worker/1", "b", kEth, 10)};
  const auto add = [&](const std::string& name, double gbps,
                       NetInterface::Kind kind,
                       const std::vector<std::string>& lower = {}) {
    for (MemberFacts& each : members) {
      each.machine->interfaces.push_back({.name = name,
                                          .kind = kind,
                                          .gbps = {.value = gbps},
                                          .lower = lower});
    }
  };
  add("eth10", 10, NetInterface::Kind::kPhysical);
  add("eth100", 100, NetInterface::Kind::kPhysical);
  add("bond0", 20, NetInterface::Kind::kBond);
  add("vlan7", 20, NetInterface::Kind::kVlan, {"bond0"});
  const auto over = [&](const std::string& interface) {
    for (MemberFacts& each : members) each.interface = interface;
    return FindDecision(MustPath(members), Decision::Kind::kConnections)->why;
  };
  EXPECT_EQ(over("eth10"), "one fills a link of 10 Gb/s");
  EXPECT_EQ(over("eth100"), "one TCP stream does not fill 100 Gb/s");
  EXPECT_EQ(MustPath(members).connections, 4);
  EXPECT_EQ(over("vlan7"), "a bond spreads by connection");
  EXPECT_EQ(MustPath(members).connections, 2);
  for (MemberFacts& each : members) each.rails = 2;
  EXPECT_EQ(over("eth10"), "one for each of 3 rails");
  EXPECT_EQ(MustPath(members).connections, 3);
}

TEST(DataPath, MachinesAreThoseOfNameAndBoot) {
  std::vector<MemberFacts> members = Three(kEth, kEth, kEth);
  members[1].host = "a";
  members[2].host = "a";
  EXPECT_EQ(RequestPath(members)->machines.size(), 1u);
  EXPECT_EQ(RequestPath(members)->request.workers, 1);
  members[1].boot_id = "2";
  EXPECT_EQ(RequestPath(members)->request.workers, 2);
  // Another member of the machine speaks for it.
  members[0].machine = absl::UnavailableError("no /sys");
  EXPECT_EQ(RequestPath(members)->machines.size(), 2u);
  EXPECT_THAT(RequestPath(members)->notes, IsEmpty());
  members[1].machine = absl::UnavailableError("no /sys");
  EXPECT_THAT(RequestPath(members)->notes,
              ElementsAre(HasSubstr("machine of worker/1 (a), it is taken to "
                                    "be like the others: no /sys")));
}

TEST(DataPath, WorkersShareAHostOfNameBootAndNetwork) {
  std::vector<MemberFacts> members = {
      On("worker/0", "a", kEth), On("worker/1", "a", kEth),
      On("worker/2", "b", kEth), On("server/0", "b", kEth)};
  EXPECT_EQ(MustPath(members).pushers, (std::vector<int>{0, 0, 2}));
  members[1].network_namespace = "net:[2]";
  EXPECT_THAT(MustPath(members).pushers, IsEmpty());
  members[0].network_namespace = "net:[2]";
  EXPECT_EQ(MustPath(members).pushers, (std::vector<int>{0, 0, 2}));
  members[1].boot_id = "2";
  EXPECT_THAT(MustPath(members).pushers, IsEmpty());
}

TEST(DataPath, TierOneIsToldByWorkers) {
  std::vector<MemberFacts> members = {
      On("worker/0", "a", kEth), On("worker/1", "a", kEth),
      On("worker/2", "b", kEth), On("server/0", "b", kEth)};
  for (MemberFacts& each : members) each.tier_one = std::nullopt;
  members[3].tier_one = false;  // a server's word does not count
  EXPECT_EQ(MustPath(members).pushers, (std::vector<int>{0, 0, 2}));
  members[2].tier_one = false;
  EXPECT_THAT(MustPath(members).pushers, IsEmpty());
  members[1].tier_one = true;
  EXPECT_THAT(RequestPath(members),
              StatusIs(StatusCode::kFailedPrecondition,
                       "tier1: worker/1 has on, worker/2 has off; give all the "
                       "same --tier1"));
}

TEST(DataPath, TierOneIsNotOfTensorsOnGpus) {
  std::vector<MemberFacts> members = {
      On("worker/0", "a", kEth), On("worker/1", "a", kEth),
      On("worker/2", "b", kEth), On("server/0", "b", kEth)};
  members[1].gdr = "auto";
  const Plan plan = MustPath(members);
  EXPECT_THAT(plan.pushers, IsEmpty());
  EXPECT_EQ(ToText(*FindDecision(plan, Decision::Kind::kTierOne)),
            "tier1 off: tensors of worker/1 are on a GPU, and workers of a "
            "host sum in its memory: 3 workers on 2 hosts");
  members[0].tier_one = false;
  EXPECT_THAT(MustPath(members).pushers, IsEmpty());
  members[0].tier_one = true;
  EXPECT_THAT(RequestPath(members),
              StatusIs(StatusCode::kFailedPrecondition,
                       "--tier1 on: tensors of worker/1 are on a GPU, and "
                       "workers of a host sum in its memory; leave it out"));
}

TEST(DataPath, ThoseThatPushAreCounted) {
  Plan plan;
  EXPECT_THAT(RanksThatPush(plan, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(RanksByPlace(plan, 3), ElementsAre(0, 1, 2));
  plan.pushers = {0, 1, 0, 1, 4};
  EXPECT_THAT(RanksThatPush(plan, 5), ElementsAre(0, 1, 4));
  EXPECT_THAT(RanksByPlace(plan, 5), ElementsAre(0, 1, 4, 2, 3));
  // These three, as a group of their own.
  EXPECT_THAT(RanksThatPush(plan, 3), ElementsAre(0, 1, 4));
}

TEST(MemberFacts, ComeBackWithoutWhatIsPrivate) {
  MemberFacts facts = On("worker/0", "a", kIb);
  facts.rails = 2;
  facts.connections = 7;
  facts.tls = "tcp";
  facts.gdr = "on";
  facts.machine->environment["NCCL_DEBUG"] = "private";
  facts.machine->interfaces = {{.name = "ib0", .addresses = {"192.0.2.7"}}};
  const std::string text = ToText(facts);
  EXPECT_THAT(text, HasSubstr("ib0"));
  EXPECT_THAT(text, Not(HasSubstr("private")));
  EXPECT_THAT(text, Not(HasSubstr("192.0.2.7")));
  const auto back = ParseMemberFacts("worker/0", text);
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(ToText(*back), text);
  facts.machine = absl::UnavailableError("no\n/sys");
  EXPECT_THAT(ParseMemberFacts("x", ToText(facts))->machine.status().message(),
              HasSubstr("no\\n/sys"));
}

TEST(MemberFacts, OfAnyBytesAreAnErrorThatNamesTheMember) {
  const std::string good = ToText(On("worker/1", "b", kIb));
  const std::string line = good.substr(0, good.find('\n'));
  std::string many = line;
  many.replace(many.find("\"rails\":0"), 9, "\"rails\":-1");
  for (const std::string& text :
       {std::string(), std::string(100000, '['), std::string("{}"),
        std::string("7"), many, line + "\n{}", line + "\n[[[",
        std::string(R"({"host":1})")}) {
    const auto facts = ParseMemberFacts("worker/1", text);
    EXPECT_THAT(facts, StatusIs(StatusCode::kInvalidArgument,
                                "worker/1 does not say what it is on"));
    EXPECT_EQ(ExitCodeOf(facts.status()), ExitCode::kMismatch);
    EXPECT_LT(facts.status().message().size(), 600u);
  }
  for (size_t i = 0; i < good.size(); i += 7) {
    ParseMemberFacts("worker/1", good.substr(0, i)).status().IgnoreError();
  }
}

TEST(CheckPath, TakesNetworksTransportsAndAuto) {
  TransportOptions options;
  for (const char* name : {"auto", "tcp", "TCP", "inproc"}) {
    options.name = name;
    EXPECT_THAT(CheckPath(options), IsOk()) << name;
  }
  options.name = "pigeon";
  EXPECT_THAT(CheckPath(options), StatusIs(StatusCode::kNotFound, "pigeon"));
  options.name = "inproc";
  options.rails = {"127.0.0.1"};
  EXPECT_THAT(CheckPath(options),
              StatusIs(StatusCode::kInvalidArgument, "takes no rails"));
}

TEST(CheckPath, KnowsWhatAGivenPlanNeedsOfThisHost) {
  PathOptions options;
  options.transport.name = "auto";
  options.transport.bind_address = "127.0.0.1";
  options.transport.connections = kAutoConnections;
  const auto give = [&](Plan plan) {
    options.given = std::make_shared<const GivenPlan>(
        GivenPlan{"--plan p.json", std::move(plan)});
    return CheckPath(options);
  };
  Plan plan = *PlanPath({}, {.workers = 2});
  EXPECT_THAT(give(plan), IsOk());  // who else there is comes out later
  plan.machines = {{.host = "elsewhere"}};
  EXPECT_THAT(give(plan),
              StatusIs(StatusCode::kFailedPrecondition, "it is for elsewhere"));
  options.transport.name = "inproc";
  EXPECT_THAT(give(*PlanPath({}, {.workers = 2})),
              StatusIs(StatusCode::kFailedPrecondition,
                       "has transport tcp, but --transport inproc means"));
}

TEST(Connections, AreANumberOrAuto) {
  EXPECT_EQ(ParseConnections("auto").value_or(99), kAutoConnections);
  EXPECT_EQ(ParseConnections("1").value_or(99), 1u);
  EXPECT_EQ(ParseConnections("64").value_or(99), 64u);
  for (const char* text : {"0", "65", "-1", "", "Auto", "2x"}) {
    EXPECT_THAT(ParseConnections(text),
                StatusIs(StatusCode::kInvalidArgument, "1 to 64"));
  }
}

}  // namespace
}  // namespace telegrad
