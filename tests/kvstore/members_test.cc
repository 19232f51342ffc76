#include "kvstore/dist/members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace telegrad {
namespace {

using ::testing::ElementsAre;

Membership MembersOn(const std::vector<std::string>& workers,
                     const std::vector<std::string>& servers) {
  Membership membership;
  const auto add = [](const std::vector<std::string>& hosts,
                      std::vector<Member>& members) {
    for (const std::string& host : hosts) {
      members.emplace_back().host = host;
    }
  };
  add(workers, membership.workers);
  add(servers, membership.servers);
  return membership;
}

std::vector<TransportOptions> UcxThenTcp() {
  std::vector<TransportOptions> transports(2);
  transports[0].name = "ucx";
  transports[1].name = "tcp";
  return transports;
}

TEST(Members, ServerMachinesAreThoseWithoutAnyWorker) {
  EXPECT_EQ(NumServerMachines(MembersOn({"a", "b"}, {"c", "d", "c"})), 2);
  EXPECT_EQ(NumServerMachines(MembersOn({"a", "b"}, {"a", "b"})), 0);
  EXPECT_EQ(NumServerMachines(MembersOn({"a", "b"}, {"c", "b"})), 0);
}

TEST(Members, OfferWhatWasAskedForAlone) {
  TransportOptions options;
  options.name = "EFA";
  const std::vector<TransportOptions> transports = TransportsOf(options);
  const TransportOffers offers = OffersOf(transports, options);
  EXPECT_THAT(offers.names, ElementsAre("ofi"));
  EXPECT_EQ(offers.why, "EFA was asked for");
  EXPECT_EQ(transports[0].tls, "efa");
}

TEST(Members, TakeBackWhatCouldNotBeMade) {
  std::vector<TransportOptions> transports = UcxThenTcp();
  TransportOffers offers{
      .names = {"ucx", "tcp"}, .addresses = {}, .why = "mlx5_0:1 does RDMA"};
  Withdraw(0, absl::ResourceExhaustedError("ulimit -l"), transports, offers);
  EXPECT_THAT(offers.names, ElementsAre("tcp"));
  EXPECT_EQ(offers.why, "ulimit -l");
  ASSERT_EQ(transports.size(), 1u);
  EXPECT_EQ(transports[0].name, "tcp");
}

TEST(Members, UseWhatTheJobHasSettledOn) {
  std::vector<TransportOptions> transports = UcxThenTcp();
  Membership membership;
  EXPECT_EQ(SettledIndex(membership, transports), 0u);
  EXPECT_EQ(SettledChoice(membership, transports[0]).name, "ucx");
  membership.transport = "tcp";
  membership.transport_reason = "worker/1 on b cannot use ucx: no card";
  EXPECT_EQ(SettledIndex(membership, transports), 1u);
  const TransportChoice choice = SettledChoice(membership, transports[0]);
  EXPECT_EQ(choice.name, "tcp");
  EXPECT_EQ(choice.reason, membership.transport_reason);
}

}  // namespace
}  // namespace telegrad
