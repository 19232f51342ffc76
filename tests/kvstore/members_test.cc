#include "kvstore/members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Membership MembersOn(const std::vector<std::string>& workers,
                     const std::vector<std::string>& servers) {
  Membership membership;
  const auto add = [](const std::vector<std::string>& hosts,
                      std::vector<Member>& members) {
    for (const std::string& host : hosts) {
      const auto rank = static_cast<int>(members.size());
      Member& member = members.emplace_back();
      member.id = {Role::kServer, rank};
      member.host = host;
    }
  };
  add(workers, membership.workers);
  add(servers, membership.servers);
  return membership;
}

OwnTransports UcxThenTcp() {
  OwnTransports own{.choice = {.name = "ucx", .reason = "mlx5_0:1 does RDMA"}};
  own.transports.resize(2);
  own.transports[0].name = "ucx";
  own.transports[1].name = "tcp";
  own.offers.names = {"ucx", "tcp"};
  own.offers.why = own.choice.reason;
  return own;
}

TEST(Members, ServerMachinesCountOnceEach) {
  const auto count = [](const std::vector<std::string>& servers) {
    const ServerMachines machines =
        ServerMachinesOf(MembersOn({"a", "b"}, servers));
    return std::pair(machines.all, machines.without_worker);
  };
  EXPECT_THAT(count({"c", "d", "c"}), Pair(2, 2));
  EXPECT_THAT(count({"a", "b"}), Pair(2, 0));
  EXPECT_THAT(count({"a", "a"}), Pair(1, 0));
  EXPECT_THAT(count({"c", "b"}), Pair(2, 1));
}

TEST(Members, AskTheFirstServerOfAHostWithoutWorkers) {
  EXPECT_THAT(ServersElsewhere(MembersOn({"a", "b"}, {"c", "b", "d", "c"})),
              ElementsAre(0, 2));
  EXPECT_THAT(ServersElsewhere(MembersOn({"a", "b"}, {"a", "b"})),
              ElementsAre());
}

TEST(Members, OfferWhatWasAskedForAlone) {
  JobOptions options;
  options.transport.name = "EFA";
  const OwnTransports own = TransportsOf(options);
  EXPECT_THAT(own.offers.names, ElementsAre("ofi"));
  EXPECT_EQ(own.offers.why, "EFA was asked for");
  EXPECT_EQ(own.transports[0].tls, "efa");
}

TEST(Members, OfferAsManyConnectionsAsTheyHave) {
  JobOptions options;
  options.transport.name = "tcp";
  options.transport.connections = 3;
  EXPECT_EQ(TransportsOf(options).offers.connections, 3u);
  EXPECT_FALSE(TransportsOf(options).offers.is_open);
  options.has_auto_connections = true;
  const OwnTransports own = TransportsOf(options);
  EXPECT_EQ(own.offers.connections, 1u);
  EXPECT_TRUE(own.offers.is_open);
  EXPECT_EQ(own.offers.connections_why, "127.0.0.1 is this host alone");
  options.transport.rails = {"127.0.0.2"};  // which no other number serves
  EXPECT_EQ(TransportsOf(options).offers.connections, 2u);
  EXPECT_FALSE(TransportsOf(options).offers.is_open);
}

// Whatever its devices are; another host has others.
TEST(Members, OfferAConnectionForEachRail) {
  OwnTransports own = UcxThenTcp();
  const ConnectionChoice fast = {4, "eth0: 4 of TCP at 25 Gb/s"};
  OfferConnections(fast, own);
  EXPECT_EQ(own.offers.connections, 4u);
  EXPECT_TRUE(own.offers.is_open);
  EXPECT_EQ(own.offers.connections_why, fast.reason);
  own.transports[0].rails = {"eth1"};
  OfferConnections(fast, own);
  EXPECT_EQ(own.offers.connections, 2u);
  EXPECT_EQ(own.transports[1].connections, 2u);
  EXPECT_FALSE(own.offers.is_open);
  EXPECT_EQ(own.offers.connections_why, "one for each of 2 rails");
  // All had the same: the reason is known.
  Membership membership;
  membership.connections = 2;
  EXPECT_EQ(SettledConnections(membership, own.offers).reason,
            own.offers.connections_why);
}

TEST(Members, ChooseConnectionsAgainForWhatIsLeft) {
  OwnTransports own = UcxThenTcp();
  own.has_auto_connections = true;
  OfferConnections({2, "bond0: a bond spreads by connection"}, own);
  Withdraw(0, absl::ResourceExhaustedError("ulimit -l"), own);
  EXPECT_EQ(own.offers.connections, 1u);
  EXPECT_EQ(own.transports[0].connections, 1u);
  EXPECT_EQ(own.offers.connections_why, "127.0.0.1 is this host alone");
}

TEST(Members, TakeBackWhatCouldNotBeMade) {
  OwnTransports own = UcxThenTcp();
  Withdraw(0, absl::ResourceExhaustedError("ulimit -l"), own);
  EXPECT_THAT(own.offers.names, ElementsAre("tcp"));
  EXPECT_EQ(own.offers.why, "ulimit -l");
  ASSERT_EQ(own.transports.size(), 1u);
  EXPECT_EQ(own.transports[0].name, "tcp");
}

TEST(Members, UseWhatTheJobHasSettledOn) {
  const OwnTransports own = UcxThenTcp();
  Membership membership;
  EXPECT_EQ(SettledIndex(membership, own), 0u);
  EXPECT_EQ(SettledChoice(membership, own.choice).name, "ucx");
  membership.transport = "tcp";
  membership.transport_reason = "worker/1 on b cannot use ucx: no card";
  EXPECT_EQ(SettledIndex(membership, own), 1u);
  const TransportChoice choice = SettledChoice(membership, own.choice);
  EXPECT_EQ(choice.name, "tcp");
  EXPECT_EQ(choice.reason, membership.transport_reason);
}

TEST(Members, HaveTheConnectionsThatTheJobHasSettledOn) {
  TransportOffers own{.is_open = true, .connections_why = "eth0 is one link"};
  Membership membership;
  EXPECT_EQ(SettledConnections(membership, own).connections, 1u);
  membership.connections = 2;
  membership.connections_reason = "of worker/1 on b: a bond";
  EXPECT_EQ(SettledConnections(membership, own).connections, 2u);
  EXPECT_EQ(SettledConnections(membership, own).reason,
            membership.connections_reason);
  own.connections = 2;
  EXPECT_EQ(SettledConnections(membership, own).reason, "eth0 is one link");
}

}  // namespace
}  // namespace telegrad
